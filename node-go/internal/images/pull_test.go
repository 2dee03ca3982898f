package images

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"rollbox.dev/node/doubles/played"
	"rollbox.dev/node/internal/problem"
)

const within = 30 * time.Second

func deaf(Progress) error { return nil }

// held is a containerd whose pulls wait until they are let go, and say when they have begun.
func held() (c *played.Containerd, begun chan string, let chan struct{}) {
	begun, let = make(chan string, 16), make(chan struct{})
	return &played.Containerd{Pulling: func(ctx context.Context, r *cri.PullImageRequest) error {
		begun <- r.GetImage().GetImage()
		select {
		case <-let:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}}, begun, let
}

func puller(t *testing.T, played *played.Containerd, atOnce int) *Puller {
	t.Helper()
	runtime := opened(t, played)
	made := NewPuller(runtime, NewUse(), NewPullMarks(runtime, "sandboxes", silent), atOnce)
	t.Cleanup(func() { made.End(); made.Wait() })
	return made
}

// callers starts calls and returns what waits for their errors.
func callers(ctx context.Context, p *Puller, image string, auths ...*cri.AuthConfig) func() []error {
	errs := make([]error, len(auths))
	var calls sync.WaitGroup
	for i, auth := range auths {
		calls.Go(func() { _, errs[i] = p.Pull(ctx, Wanted{image, "runsc", auth}, deaf) })
	}
	return func() []error { calls.Wait(); return errs }
}

// joined waits until a pull has so many callers.
func joined(t *testing.T, p *Puller, image string, count int) {
	t.Helper()
	until(t, func() bool {
		p.mutex.Lock()
		defer p.mutex.Unlock()
		one := p.pulls[(Wanted{image, "runsc", nil}).key()]
		return one != nil && one.callers == count
	})
}

func until(t *testing.T, done func() bool) {
	t.Helper()
	for end := time.Now().Add(within); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it has not come to that")
		}
	}
}

func TestEqualCallsJoinOnePull(t *testing.T) {
	played, begun, let := held()
	p := puller(t, played, 2)
	wait := callers(t.Context(), p, "hub/a:1", nil, nil, nil)
	<-begun
	joined(t, p, "hub/a:1", 3)
	close(let)
	for _, err := range wait() {
		if err != nil {
			t.Error(err)
		}
	}
	if len(played.Pulled) != 1 || played.Pulled[0].GetSandboxConfig().GetAnnotations()[handlerAnnotation] != "runsc" {
		t.Errorf("pulled %v", played.Pulled)
	}
}

func TestNobodyJoinsAPullWithOtherCredentials(t *testing.T) {
	played, begun, let := held()
	p := puller(t, played, 4)
	alice, bob := &cri.AuthConfig{Username: "alice", Password: "x"}, &cri.AuthConfig{Username: "alic", Password: "ex"}
	wait := callers(t.Context(), p, "hub/a:1", nil, alice, bob)
	for range 3 {
		<-begun
	}
	close(let)
	wait()
	if len(played.Pulled) != 3 {
		t.Errorf("%d pulls", len(played.Pulled))
	}
}

func TestPullsWaitForAPlace(t *testing.T) {
	played, begun, let := held()
	p := puller(t, played, 1)
	first := callers(t.Context(), p, "hub/a:1", nil)
	<-begun
	states := make(chan Progress, 16)
	done := make(chan error)
	go func() {
		_, err := p.Pull(t.Context(), Wanted{Image: "hub/b:1"}, func(now Progress) error { states <- now; return nil })
		done <- err
	}()
	if now := <-states; now.Pulling {
		t.Errorf("a second one pulls: %v", now)
	}
	if len(begun) != 0 {
		t.Error("a second one has begun")
	}
	let <- struct{}{}
	first()
	if <-begun != "hub/b:1" {
		t.Error("not the second one")
	}
	close(let)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestAPullEndsWithItsLastCaller(t *testing.T) {
	played, begun, _ := held()
	p := puller(t, played, 1)
	one, leave := context.WithCancel(t.Context())
	other, leaveToo := context.WithCancel(t.Context())
	first, second := callers(one, p, "hub/a:1", nil), callers(other, p, "hub/a:1", nil)
	<-begun
	joined(t, p, "hub/a:1", 2)
	leave()
	first()
	joined(t, p, "hub/a:1", 1)
	leaveToo()
	if err := second()[0]; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	// Its place is free again.
	third := callers(t.Context(), p, "hub/b:1", nil)
	if name := <-begun; name != "hub/b:1" {
		t.Errorf("%s began", name)
	}
	p.End()
	if err := third()[0]; problem.From(err).Code != problem.Draining {
		t.Error(err)
	}
	if _, err := p.Pull(t.Context(), Wanted{Image: "hub/c:1"}, deaf); problem.From(err).Code != problem.Draining {
		t.Error(err)
	}
}

func TestBytesAreThoseOfThisMachinesManifest(t *testing.T) {
	index := fmt.Sprintf(`{"manifests":[
		{"digest":"sha256:other","platform":{"os":"linux","architecture":"of-none"}},
		{"digest":"sha256:mine","platform":{"os":"linux","architecture":%q}}]}`, runtime.GOARCH)
	played := &played.Containerd{
		Blobs: map[string][]byte{
			"sha256:index": []byte(index),
			"sha256:mine": []byte(`{"config":{"digest":"sha256:c","size":5},"layers":[
				{"digest":"sha256:l1","size":100},{"digest":"sha256:l2","size":50},{"digest":"sha256:l1","size":100}]}`),
			"sha256:c": []byte("conf!"),
		},
		Arriving: map[string]int64{"sha256:l1": 30},
	}
	store := opened(t, played).Content
	measure := newMeter(store, "hub/a@sha256:index")
	if done, total := measure.count(t.Context()); done != 35 || total != 155 {
		t.Errorf("%d of %d", done, total)
	}
	played.Mutex.Lock()
	delete(played.Arriving, "sha256:l1")
	played.Blobs["sha256:l1"], played.Blobs["sha256:l2"] = []byte("whole"), []byte("whole")
	played.Mutex.Unlock()
	if done, total := measure.count(t.Context()); done != 155 || total != 155 {
		t.Errorf("%d of %d", done, total)
	}
	for _, unknown := range []string{"hub/a:1", "hub/a@sha256:later"} {
		if _, total := newMeter(store, unknown).count(t.Context()); total >= 0 {
			t.Errorf("%s has %d bytes", unknown, total)
		}
	}
}

func TestAFailedPullSaysWhoseItIs(t *testing.T) {
	for words, want := range map[string]problem.Code{
		"failed to resolve reference \"IMAGE\": IMAGE: not found":                                          problem.ImageNotFound,
		"failed to parse image reference \"IMAGE\": invalid reference format":                              problem.ImageNotFound,
		"pull access denied, repository does not exist or may require authorization: server message: x":    problem.ImagePullFailed,
		"unexpected status from HEAD request to https://r/v2/a/manifests/1: 429 Too Many Requests":         problem.ImagePullFailed,
		"failed to do request: Head \"https://r/v2/\": dial tcp 10.0.0.1:443: connect: connection refused": problem.ImagePullFailed,
		"no match for platform in manifest: not found":                                                     problem.ImagePullFailed,
		"media type \"application/vnd.docker.distribution.manifest.v1+prettyjws\" is no longer supported":  problem.Unsupported,
		"unable to fetch descriptor (sha256:e3b0) which reports content size of zero: invalid argument":    problem.Unsupported,
		"failed to extract layer: write /x: no space left on device: unknown":                              problem.ImagePullFailed,
	} {
		image := "hub/not-found:429"
		err := notPulled(image, status.Error(codes.Unknown, strings.ReplaceAll(words, "IMAGE", image)))
		if found := problem.From(err); found.Code != want || found.Details["image"] != image {
			t.Errorf("%s: %v", words, err)
		}
	}
	if code := problem.From(notPulled("a", status.Error(codes.Unavailable, "no socket"))).Code; code != problem.UpstreamTimeout {
		t.Errorf("without containerd: %s", code)
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"manifests":[{"digest":"sha256:1"}]}`))
	f.Add([]byte(`{"layers":[{"digest":"sha256:1","size":-1},{"size":3}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var found manifest
		if json.Unmarshal(text, &found) != nil {
			return
		}
		_, _ = found.forThisMachine()
		for _, one := range distinct(append(found.Layers, found.Config)) {
			if one.Digest == "" || one.Size < 0 {
				t.Errorf("%v is no part", one)
			}
		}
	})
}
