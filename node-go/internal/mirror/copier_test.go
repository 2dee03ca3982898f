package mirror

import (
	"context"
	"errors"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"rollbox.dev/node/internal/wire"
)

func TestACopyIsWhatWasNamed(t *testing.T) {
	upstream, private := serve(t), serve(t)
	source := image(t, "one", "two")
	at := upstream.push(t, "team/app", source)
	result := copied(t, copierFor(t, upstream, private, time.Minute), wish(at))
	if want := at[strings.Index(at, "@")+1:]; result.Digest != want || result.There {
		t.Fatalf("%v, want %s", result, want)
	}
	there, err := name.NewDigest(private.host + "/mirror/app@" + result.Digest)
	if err != nil {
		t.Fatal(err)
	}
	pulled, err := remote.Image(there)
	if err != nil {
		t.Fatal(err)
	}
	layers, err := pulled.Layers()
	if err != nil || len(layers) != 2 {
		t.Fatal(len(layers), err)
	}
}

func TestACopyThatIsThereCostsOneHead(t *testing.T) {
	upstream, private := serve(t), serve(t)
	at := upstream.push(t, "team/app", image(t, "one"))
	first := copied(t, copierFor(t, upstream, private, time.Minute), wish(at))
	upstream.forget()
	private.forget()
	second := copied(t, copierFor(t, upstream, private, time.Minute), wish(at))
	if !second.There || second.Digest != first.Digest {
		t.Fatal(second)
	}
	if upstream.count("", "") != 0 || private.count("HEAD", "/manifests/copy-") != 1 || private.count("PUT", "") != 0 {
		t.Fatalf("upstream %v, private %v", upstream.asked, private.asked)
	}
}

func TestEqualCopiesJoin(t *testing.T) {
	upstream, private := serve(t), serve(t)
	source := image(t, "one", "two")
	at := upstream.push(t, "team/app", source)
	upstream.forget()
	copier := copierFor(t, upstream, private, time.Minute)
	var group sync.WaitGroup
	for range 16 {
		group.Go(func() { copied(t, copier, wish(at)) })
	}
	group.Wait()
	if got := upstream.count("GET", layerOf(t, source, 0)); got != 1 {
		t.Fatalf("a layer was read %d times", got)
	}
}

func TestWhatIsThereIsNotSentAgain(t *testing.T) {
	upstream, private := serve(t), serve(t)
	source := image(t, "one", "two")
	at := upstream.push(t, "team/app", source)
	second := layerOf(t, source, 1)
	upstream.interfere(func(w http.ResponseWriter, r *http.Request) bool {
		if strings.Contains(r.URL.Path, second) {
			w.WriteHeader(http.StatusInternalServerError)
			return true
		}
		return false
	})
	first := copierFor(t, upstream, private, time.Minute)
	first.LayersAtOnce = 1 // in their order
	if got := told(refused(t, first, wish(at))); got != "image_pull_failed upstream away" {
		t.Fatal(got)
	}
	upstream.interfere(nil)
	upstream.forget()
	// Another process, as after a restart.
	copied(t, copierFor(t, upstream, private, time.Minute), wish(at))
	if upstream.count("GET", layerOf(t, source, 0)) != 0 || upstream.count("GET", second) != 1 {
		t.Fatal(upstream.asked)
	}
}

func TestALayerOfTheSameRegistryIsMounted(t *testing.T) {
	upstream, other, private := serve(t), serve(t), serve(t)
	first, second := image(t, "base", "one"), image(t, "base", "two")
	// The test's registry has blobs by their digest alone; a real one looks in the repository.
	private.interfere(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodHead && strings.Contains(r.URL.Path, "/blobs/") {
			w.WriteHeader(http.StatusNotFound)
			return true
		}
		return false
	})
	copier := copierFor(t, upstream, private, time.Minute)
	copier.Upstream = NewRetryAfter(NewGuard([]string{upstream.host, other.host}).Transport(time.Minute))
	asked := wish(upstream.push(t, "team/first", first))
	asked.Target = "mirror/first"
	copied(t, copier, asked)
	private.forget()
	asked = wish(upstream.push(t, "team/second", second))
	asked.Target = "mirror/second"
	copied(t, copier, asked)
	if private.count("POST", "from=mirror%2Ffirst") != 1 {
		t.Fatalf("a layer that the registry has was sent: %v", private.asked)
	}
	// Another registry has to give all of it: what it only names may be somebody else's.
	private.forget()
	asked = wish(other.push(t, "team/second", second))
	asked.Target = "mirror/third"
	copied(t, copier, asked)
	if private.count("POST", "from=") != 0 {
		t.Fatalf("a layer of another registry was taken: %v", private.asked)
	}
}

func indexed(t *testing.T, upstream *server, by map[string]v1.Image) string {
	t.Helper()
	index := mutate.IndexMediaType(empty.Index, "application/vnd.oci.image.index.v1+json")
	for architecture, one := range by {
		platform := &v1.Platform{OS: "linux", Architecture: architecture}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: one, Descriptor: v1.Descriptor{Platform: platform}})
	}
	digest, err := index.Digest()
	if err != nil {
		t.Fatal(err)
	}
	at, err := name.NewDigest(upstream.host + "/team/app@" + digest.String())
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.WriteIndex(at, index); err != nil {
		t.Fatal(err)
	}
	return at.String()
}

func TestOfAnIndexWhatNodesRunIsCopied(t *testing.T) {
	upstream, private := serve(t), serve(t)
	amd, arm, ibm := image(t, "amd"), image(t, "arm"), image(t, "ibm")
	at := indexed(t, upstream, map[string]v1.Image{"amd64": amd, "arm64": arm, "s390x": ibm})
	upstream.forget()
	copier := copierFor(t, upstream, private, time.Minute)
	want, _ := amd.Digest()
	if one := copied(t, copier, wish(at)); one.Digest != want.String() {
		t.Fatal(one)
	}
	if upstream.count("GET", layerOf(t, arm, 0)) != 0 {
		t.Fatal("a platform that no node has was copied")
	}
	asked := wish(at)
	asked.Architectures = []string{"arm64", "amd64"}
	both := copied(t, copier, asked)
	there, _ := name.NewDigest(private.host + "/mirror/app@" + both.Digest)
	index, err := remote.Index(there)
	if err != nil {
		t.Fatal(err)
	}
	read, err := index.IndexManifest()
	if err != nil || len(read.Manifests) != 2 {
		t.Fatal(read, err)
	}
	asked = wish(at)
	asked.Architectures = []string{"riscv64"}
	if got := refused(t, copier, asked); got.Code != "unsupported" {
		t.Fatal(got)
	}
}

func TestATagIsKnownAfterwards(t *testing.T) {
	upstream, private := serve(t), serve(t)
	copier := copierFor(t, upstream, private, time.Minute)
	find := func() *wire.FindReply {
		found, err := copierFor(t, upstream, private, time.Minute).Find(context.Background(), &wire.FindRequest{Repository: "mirror/app", Reference: "1.0"})
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	for _, text := range []string{"old", "new", "old"} {
		at := upstream.push(t, "team/app", image(t, text))
		asked := wish(at)
		asked.Tag = "1.0"
		result := copied(t, copier, asked)
		if found := find(); found.Digest != result.Digest || found.Named != at[strings.Index(at, "@")+1:] {
			t.Fatalf("%v, want %v", found, result)
		}
	}
	_, err := copier.Find(context.Background(), &wire.FindRequest{Repository: "mirror/app", Reference: "2.0"})
	if err == nil || !strings.Contains(err.Error(), "has no mirror/app:2.0") {
		t.Fatal(err)
	}
}

func tagged(at, tag string) *wire.CopyRequest {
	asked := wish(at)
	asked.Tag = tag
	return asked
}

func TestTagsAreKnownAgainAfterTheRegistryWasEmptied(t *testing.T) {
	upstream, private := serve(t), serve(t)
	copier := copierFor(t, upstream, private, time.Minute)
	at := upstream.push(t, "team/app", image(t, "one"))
	for range 2 {
		for _, tag := range []string{"1.0", "latest"} {
			result := copied(t, copier, tagged(at, tag))
			found, err := copier.Find(t.Context(), &wire.FindRequest{Repository: "mirror/app", Reference: tag})
			if err != nil || found.Digest != result.Digest {
				t.Fatalf("%s: %v, %v", tag, found, err)
			}
		}
		private.empty()
	}
}

func TestEachOfTheCallsThatJoinHasItsTagNoted(t *testing.T) {
	upstream, private := serve(t), serve(t)
	at := upstream.push(t, "team/app", image(t, "one"))
	copier := copierFor(t, upstream, private, time.Minute)
	begun, goOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	upstream.interfere(func(_ http.ResponseWriter, r *http.Request) bool {
		once.Do(func() { close(begun) })
		<-goOn
		return false
	})
	tags := []string{"1", "1.0", "1.0.0", "latest"}
	var group sync.WaitGroup
	for number, tag := range tags {
		joined := make(chan struct{})
		group.Go(func() {
			told := sync.OnceFunc(func() { close(joined) })
			if _, err := copier.Copy(t.Context(), tagged(at, tag), func(*wire.CopyProgress) error { told(); return nil }); err != nil {
				t.Error(err)
			}
		})
		if <-joined; number == 0 {
			<-begun
		}
	}
	close(goOn)
	group.Wait()
	if got := private.count("PUT", "/manifests/copy-"); got != 1 {
		t.Errorf("%d copies were made", got)
	}
	for _, tag := range tags {
		if _, err := copier.Find(t.Context(), &wire.FindRequest{Repository: "mirror/app", Reference: tag}); err != nil {
			t.Errorf("%s: %v", tag, err)
		}
	}
}

func TestWhoeverIsLeftByAllEnds(t *testing.T) {
	upstream, private := serve(t), serve(t)
	at := upstream.push(t, "team/app", image(t, "one"))
	begun := make(chan struct{}, 16)
	upstream.interfere(func(_ http.ResponseWriter, r *http.Request) bool {
		if strings.Contains(r.URL.Path, "/blobs/") {
			begun <- struct{}{}
			<-r.Context().Done()
			return true
		}
		return false
	})
	copier := copierFor(t, upstream, private, time.Minute)
	ctx, cancel := context.WithCancel(context.Background())
	go func() { <-begun; cancel() }()
	if _, err := copier.Copy(ctx, wish(at), quiet); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	copier.Wait()
	upstream.interfere(nil)
	copied(t, copier, wish(at))
}

func TestOneCallersCredentialsAreNotAnothers(t *testing.T) {
	upstream, private := serve(t), serve(t)
	at := upstream.push(t, "team/app", image(t, "one"))
	asking := make(chan struct{})
	var once sync.Once
	upstream.interfere(func(w http.ResponseWriter, r *http.Request) bool {
		_, password, _ := r.BasicAuth()
		if password == "wrong" {
			once.Do(func() { close(asking) })
			time.Sleep(100 * time.Millisecond)
		}
		if password == "right" {
			return false
		}
		w.Header().Set("WWW-Authenticate", `Basic realm="r"`)
		w.WriteHeader(http.StatusUnauthorized)
		return true
	})
	copier := copierFor(t, upstream, private, time.Minute)
	with := func(password string) *wire.CopyRequest {
		asked := wish(at)
		asked.Upstream = &wire.UpstreamCredentials{Username: "user", Password: password}
		return asked
	}
	var group sync.WaitGroup
	group.Go(func() {
		if got := told(refused(t, copier, with("wrong"))); got != "image_not_found upstream denied" {
			t.Error(got)
		}
	})
	<-asking
	copied(t, copier, with("right"))
	group.Wait()
}

func TestALayerIsNeverHeldInMemory(t *testing.T) {
	upstream, private := serve(t), serve(t)
	const size = 64 << 20
	source := image(t, strings.Repeat("x", size))
	at := upstream.push(t, "team/app", source)
	// A registry that keeps nothing of what it is sent.
	private.interfere(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPatch {
			return false
		}
		buffer := make([]byte, 64<<10)
		for {
			if _, err := r.Body.Read(buffer); err != nil {
				break
			}
		}
		w.WriteHeader(http.StatusInsufficientStorage)
		return true
	})
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if got := told(refused(t, copierFor(t, upstream, private, time.Minute), wish(at))); got != "image_store_full registry full" {
		t.Fatal(got)
	}
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > size/4 {
		t.Fatalf("%d bytes were allocated for a layer of %d", grown, size)
	}
}
