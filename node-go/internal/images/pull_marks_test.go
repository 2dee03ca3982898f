package images

import (
	"context"
	"sync"
	"testing"
	"time"

	apievents "github.com/containerd/containerd/api/events"
	containers "github.com/containerd/containerd/api/services/containers/v1"
	records "github.com/containerd/containerd/api/services/images/v1"
	"github.com/containerd/containerd/api/types"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/timestamppb"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"rollbox.dev/node/doubles/played"
	"rollbox.dev/node/internal/problem"
)

const (
	digest = "hub/swe@sha256:d2"
	uid    = "1-2-3"
)

var begun = time.UnixMilli(1_000_000)

// brought is a node whose image swe has two names and a digest, made so many milliseconds after the time `begun`.
func brought(after map[string]int64) *played.Containerd {
	found := node()
	found.Images[1].RepoDigests = []string{digest}
	found.Records = map[string]*records.Image{}
	for name, ms := range after {
		found.Records[name] = &records.Image{
			Name: name, CreatedAt: timestamppb.New(begun.Add(time.Duration(ms) * time.Millisecond)),
			Labels: map[string]string{"io.cri-containerd.image": "managed"},
		}
	}
	return found
}

func told(t *testing.T, storing *Store) *int64 {
	t.Helper()
	list, err := storing.List(context.Background(), false)
	if err != nil {
		t.Fatal(err)
	}
	if list[0].BroughtMs != nil || list[2].BroughtMs != nil {
		t.Errorf("others: %v", list)
	}
	return list[1].BroughtMs
}

func TestAnImageIsBroughtIfAllItsNamesCameAfterwards(t *testing.T) {
	for _, c := range []struct {
		name  string
		after map[string]int64
		want  int64
	}{
		{"all", map[string]int64{"hub/swe:1": 0, "hub/swe:latest": 5, digest: 3}, 1_000_005},
		{"one was there", map[string]int64{"hub/swe:1": -1, "hub/swe:latest": 5, digest: 3}, 0},
		{"one has no record any more", map[string]int64{"hub/swe:1": 0, digest: 3}, 0},
	} {
		played := brought(c.after)
		runtime := opened(t, played)
		judge := NewPullMarks(runtime, "sandboxes", silent)
		if err := judge.since(context.Background(), swe, begun); err != nil {
			t.Fatal(err)
		}
		if at := told(t, NewStore(runtime, []string{"kata"}, NewUse(), judge)); (at == nil) != (c.want == 0) || at != nil && *at != c.want {
			t.Errorf("%s: %v", c.name, at)
		}
		for name, one := range played.Records {
			if one.GetLabels()["io.cri-containerd.image"] != "managed" {
				t.Errorf("%s: %s has lost containerd's label", c.name, name)
			}
		}
	}
}

func TestANameThatComesLaterMakesItSomebodyElses(t *testing.T) {
	played := brought(map[string]int64{"hub/swe:1": 0, digest: 0})
	played.Images[1].RepoTags = []string{"hub/swe:1"}
	runtime := opened(t, played)
	judge := NewPullMarks(runtime, "sandboxes", silent)
	storing := NewStore(runtime, []string{"kata"}, NewUse(), judge)
	if err := judge.since(context.Background(), swe, begun); err != nil || told(t, storing) == nil {
		t.Fatal(err)
	}
	played.Mutex.Lock()
	played.Images[1].RepoTags = []string{"hub/swe:1", "hub/swe:latest"}
	played.Records["hub/swe:latest"] = &records.Image{Name: "hub/swe:latest", CreatedAt: timestamppb.New(begun)}
	played.Mutex.Unlock()
	if at := told(t, storing); at != nil {
		t.Error(*at)
	}
}

func TestOnlyWhatWasBroughtIsRemovedWhereThatIsAsked(t *testing.T) {
	played := brought(map[string]int64{"hub/swe:1": 0, "hub/swe:latest": 5, digest: 3})
	runtime := opened(t, played)
	judge := NewPullMarks(runtime, "sandboxes", silent)
	storing := NewStore(runtime, []string{"kata"}, NewUse(), judge)
	if _, err := storing.Remove(context.Background(), "hub/swe:1", true); err == nil || problem.From(err).Code != problem.Conflict {
		t.Errorf("somebody else's: %v", err)
	}
	if err := judge.since(context.Background(), swe, begun); err != nil {
		t.Fatal(err)
	}
	if removed, err := storing.Remove(context.Background(), "hub/swe:1", true); err != nil || !removed {
		t.Errorf("%v, %v", removed, err)
	}
}

func TestAPrefetchMarksWhatItHasBrought(t *testing.T) {
	played := brought(map[string]int64{"hub/swe:1": 3_000_000_000_000, "hub/swe:latest": 3_000_000_000_000, digest: 3_000_000_000_000})
	// As the runtime names what it has pulled.
	played.Images[1].Id = "sha256:hub/swe:1"
	runtime := opened(t, played)
	judge := NewPullMarks(runtime, "sandboxes", silent)
	puller := NewPuller(runtime, NewUse(), judge, 1)
	none := func(Progress) error { return nil }
	if _, err := puller.Pull(context.Background(), Wanted{Image: "hub/swe:1", Handler: "kata"}, none); err != nil {
		t.Fatal(err)
	}
	if at := told(t, NewStore(runtime, []string{"kata"}, NewUse(), judge)); at == nil {
		t.Error("not marked")
	}
}

func TestAnImageThatASandboxsPodHasBroughtIsMarked(t *testing.T) {
	for _, c := range []struct {
		name, namespace, podUID string
		pod                     time.Time
		marked                  bool
	}{
		{"its pod was made before it", "sandboxes", uid, begun, true},
		{"its pod was made after it", "sandboxes", uid, begun.Add(time.Hour), false},
		{"another namespace's", "others", uid, begun, false},
		{"a pod that is gone", "sandboxes", "another", begun, false},
	} {
		played := brought(map[string]int64{"hub/swe:1": 0, "hub/swe:latest": 0, digest: 0})
		labels := map[string]string{namespaceLabel: c.namespace, podLabel: uid}
		played.Made = map[string]*containers.Container{"c": {ID: "c", Labels: labels}}
		about := &cri.PodSandboxMetadata{Namespace: c.namespace, Uid: c.podUID}
		played.Pods = []*cri.PodSandbox{{Metadata: about, CreatedAt: c.pod.UnixNano()}}
		runtime := opened(t, played)
		judge := NewPullMarks(runtime, "sandboxes", silent)
		// The second time it is known.
		for range 2 {
			judge.used(context.Background(), "c", "hub/swe:1")
		}
		if at := told(t, NewStore(runtime, []string{"kata"}, NewUse(), judge)); (at != nil) != c.marked {
			t.Errorf("%s: %v", c.name, at)
		}
	}
}

func TestContainersAreJudgedAsTheyAreMade(t *testing.T) {
	played := brought(map[string]int64{"hub/swe:1": 0, "hub/swe:latest": 0, digest: 0})
	labels := map[string]string{namespaceLabel: "sandboxes", podLabel: uid}
	played.Made = map[string]*containers.Container{"c": {ID: "c", Labels: labels}}
	about := &cri.PodSandboxMetadata{Namespace: "sandboxes", Uid: uid}
	played.Pods = []*cri.PodSandbox{{Metadata: about, CreatedAt: begun.UnixNano()}}
	played.Events = make(chan *types.Envelope)
	runtime := opened(t, played)
	judge := NewPullMarks(runtime, "sandboxes", silent)
	ctx, cancel := context.WithCancel(context.Background())
	var following sync.WaitGroup
	following.Go(func() { NewUse().Follow(ctx, runtime, judge, silent) })
	defer following.Wait()
	defer cancel()
	made, err := anypb.New(&apievents.ContainerCreate{ID: "c", Image: "hub/swe:1"})
	if err != nil {
		t.Fatal(err)
	}
	played.Events <- &types.Envelope{Topic: "/containers/create", Event: made}
	for !judge.known("hub/swe:1") {
		time.Sleep(time.Millisecond)
	}
	if told(t, NewStore(runtime, []string{"kata"}, NewUse(), judge)) == nil {
		t.Error("not marked")
	}
	// Whatever is removed, the next one of it is judged anew.
	played.Events <- &types.Envelope{Topic: "/images/delete"}
	for judge.known("hub/swe:1") {
		time.Sleep(time.Millisecond)
	}
}
