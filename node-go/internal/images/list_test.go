package images

import (
	"context"
	"io"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	apievents "github.com/containerd/containerd/api/events"
	"github.com/containerd/containerd/api/types"
	"google.golang.org/protobuf/types/known/anypb"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"rollbox.dev/node/doubles/played"
	"rollbox.dev/node/internal/containerd"
	"rollbox.dev/node/internal/problem"
)

const (
	python = "sha256:aaaa"
	swe    = "sha256:bbbb"
	pause  = "sha256:cccc"
)

func opened(t *testing.T, played *played.Containerd) *containerd.Runtime {
	t.Helper()
	runtime, err := containerd.Open(played.Start(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = runtime.Close() })
	return runtime
}

var silent = slog.New(slog.NewTextHandler(io.Discard, nil))

func store(runtime *containerd.Runtime, handlers []string, use *Use) *Store {
	return NewStore(runtime, handlers, use, NewPullMarks(runtime, "sandboxes", silent))
}

func node() *played.Containerd {
	return &played.Containerd{
		Images: []*cri.Image{
			{Id: python, RepoTags: []string{"hub/python:3"}, RepoDigests: []string{"hub/python@sha256:d1"}, Size: 100},
			{Id: swe, RepoTags: []string{"hub/swe:1", "hub/swe:latest"}, Size: 200},
			{Id: pause, RepoTags: []string{"pause:1"}, Pinned: true},
		},
		Infos: map[string]string{
			python: `{"imageSpec":{"rootfs":{"diff_ids":["sha256:1","sha256:2"]}}}`,
			swe:    `{"imageSpec":{"rootfs":{"diff_ids":["sha256:3"]}}}`,
		},
		Containers: []*cri.Container{
			{ImageId: python, ImageRef: python, Image: &cri.ImageSpec{Image: python}, CreatedAt: 5_000_000_000},
			{ImageId: python, ImageRef: python, Image: &cri.ImageSpec{Image: "hub/python:3"}, CreatedAt: 9_000_000_000},
		},
	}
}

func TestImagesAreListedWithWhatUsesThem(t *testing.T) {
	list, err := store(opened(t, node()), []string{"kata"}, NewUse()).List(context.Background(), false)
	if err != nil || len(list) != 3 {
		t.Fatalf("%v, %v", list, err)
	}
	used, unused := list[0], list[1]
	if used.GetContainers() != 2 || used.GetLastUsedMs() != 9000 || used.GetSizeBytes() != 100 || used.GetId() != python {
		t.Errorf("python: %v", used)
	}
	if !slices.Equal(used.GetNames(), []string{"hub/python:3"}) || !slices.Equal(used.GetDigests(), []string{"hub/python@sha256:d1"}) {
		t.Errorf("python: %v", used)
	}
	if unused.GetContainers() != 0 || unused.LastUsedMs != nil || unused.GetLazy() || unused.Lazy == nil {
		t.Errorf("swe: %v", unused)
	}
	if !list[2].GetPinned() {
		t.Errorf("pause: %v", list[2])
	}
}

func TestAnImageIsLazyWhenOneOfItsLayersIs(t *testing.T) {
	chain := chainOf([]string{"sha256:1", "sha256:2"})
	played := node()
	played.Remote = chain[1:]
	list, err := store(opened(t, played), []string{"kata", "runsc"}, NewUse()).List(context.Background(), false)
	if err != nil {
		t.Fatal(err)
	}
	if !list[0].GetLazy() || list[1].GetLazy() || list[1].Lazy == nil {
		t.Errorf("%v", list)
	}
}

func TestASnapshotterThatHangsKeepsItsLastWordAndNoImageFromBeingTold(t *testing.T) {
	played := node()
	played.Remote = chainOf([]string{"sha256:1", "sha256:2"})[1:]
	storing := store(opened(t, played), []string{"runsc"}, NewUse())
	if _, err := storing.List(context.Background(), false); err != nil {
		t.Fatal(err)
	}
	played.Mutex.Lock()
	played.Hangs = true
	played.Mutex.Unlock()
	storing.lazy.within = time.Millisecond
	list, err := storing.List(context.Background(), false)
	if err != nil || len(list) != 3 || !list[0].GetLazy() || list[1].GetLazy() {
		t.Errorf("%v, %v", list, err)
	}
}

func TestANodeNeedNotHaveAllHandlers(t *testing.T) {
	list, err := store(opened(t, node()), []string{"kata", "absent"}, NewUse()).List(context.Background(), false)
	if err != nil || len(list) != 3 || list[0].GetLazy() {
		t.Errorf("%v, %v", list, err)
	}
}

func TestOnlyWhatNothingUsesIsRemoved(t *testing.T) {
	played := node()
	storing := store(opened(t, played), []string{"runsc"}, NewUse())
	for _, c := range []struct {
		name    string
		removed bool
		code    problem.Code
	}{
		{"hub/swe:latest", true, ""},
		{"hub/none:1", false, ""},
		{"hub/python:3", false, problem.Conflict},
		{python, false, problem.Conflict},
		{"pause:1", false, problem.Conflict},
	} {
		removed, err := storing.Remove(context.Background(), c.name, false)
		if removed != c.removed || (err == nil) != (c.code == "") || err != nil && problem.From(err).Code != c.code {
			t.Errorf("%s: %v, %v", c.name, removed, err)
		}
	}
	if !slices.Equal(played.Removed, []string{"hub/swe:latest"}) {
		t.Errorf("removed %v", played.Removed)
	}
}

func TestAContainerThatIsGoneIsRemembered(t *testing.T) {
	played := node()
	played.Events = make(chan *types.Envelope)
	runtime, use := opened(t, played), NewUse()
	use.now = func() time.Time { return time.UnixMilli(77_000) }
	ctx, cancel := context.WithCancel(context.Background())
	var following sync.WaitGroup
	following.Go(func() { use.Follow(ctx, runtime, NewPullMarks(runtime, "sandboxes", silent), silent) })
	defer following.Wait()
	defer cancel()
	made, err := anypb.New(&apievents.ContainerCreate{ID: "c", Image: "hub/swe:1"})
	if err != nil {
		t.Fatal(err)
	}
	// As containerd writes it, without a host.
	made.TypeUrl = "containerd.events.ContainerCreate"
	played.Events <- &types.Envelope{Topic: "/containers/create", Event: made}
	// Events are on their way for a moment after they were taken.
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		list, err := store(runtime, []string{"runsc"}, use).List(context.Background(), false)
		if err == nil && list[1].GetLastUsedMs() == 77_000 {
			return
		}
		if time.Since(began) > time.Minute {
			t.Fatalf("%v, %v", list, err)
		}
	}
}

func TestChainsAreThoseOfTheSpecification(t *testing.T) {
	chain := chainOf([]string{"sha256:1", "sha256:2", "sha256:3"})
	want := "sha256:86095f8fe4f778dd9cd1eaa8351228c07b0476d1635c04d136b40abfd6fa0fef"
	if len(chain) != 3 || chain[0] != "sha256:1" || chain[1] != want || chain[1] == chain[2] {
		t.Errorf("%v", chain)
	}
}

func FuzzLayersOf(f *testing.F) {
	f.Add(`{"imageSpec":{"rootfs":{"diff_ids":["sha256:1"]}}}`)
	f.Add(`{"imageSpec":[]}`)
	f.Fuzz(func(t *testing.T, info string) {
		if layers := layersOf(info); len(chainOf(layers)) != len(layers) {
			t.Errorf("%v", layers)
		}
	})
}
