package mirror

import (
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"rollbox.dev/node/internal/convert"
	"rollbox.dev/node/internal/problem"
	"rollbox.dev/node/internal/wire"
)

func lazily(t *testing.T) (*wire.CopyRequest, *Copier, *server, *server) {
	t.Helper()
	upstream, private := serve(t), serve(t)
	copier := copierFor(t, upstream, private, time.Minute)
	copier.Forms = map[wire.ImageForm]Converter{wire.ImageForm_ESTARGZ: ESTARGZ(1<<30, 1<<30)}
	return lazyWish(""), copier, upstream, private
}

func TestAConvertedCopyNamesItsSource(t *testing.T) {
	source, err := random.Image(50_000, 3)
	if err != nil {
		t.Fatal(err)
	}
	asked, copier, upstream, private := lazily(t)
	asked.Source = upstream.push(t, "team/app", source)
	result := copied(t, copier, asked)
	named := asked.Source[strings.Index(asked.Source, "@")+1:]
	if result.Digest == named || result.There {
		t.Fatal(result)
	}
	at, err := name.NewDigest(private.host + "/estargz/app@" + result.Digest)
	if err != nil {
		t.Fatal(err)
	}
	made, err := remote.Image(at)
	if err != nil {
		t.Fatal(err)
	}
	read, err := made.Manifest()
	if err != nil || read.Annotations[convert.SourceAnnotation] != named || len(read.Layers) != 3 {
		t.Fatal(read, err)
	}
	for _, layer := range read.Layers {
		if layer.Annotations["containerd.io/snapshot/stargz/toc.digest"] == "" {
			t.Fatalf("no table of contents: %v", layer.Annotations)
		}
	}
	// The plain copy is there too, and with it a conversion needs nothing of the upstream registry.
	if plain := copied(t, copier, wish(asked.Source)); !plain.There || plain.Digest != named {
		t.Fatal(plain)
	}
	if again := copied(t, copier, asked); !again.There || again.Digest != result.Digest {
		t.Fatal(again)
	}
	if left, err := os.ReadDir(copier.Folder); err != nil || len(left) != 0 {
		t.Fatal(left, err)
	}
}

func TestWhatIsNotConvertedIsRefusedAndOffersNothing(t *testing.T) {
	asked, copier, upstream, private := lazily(t)
	asked.Source = upstream.push(t, "team/app", image(t, "no tar"))
	got := refused(t, copier, asked)
	if private.count("PUT", "/estargz/app/manifests/") != 0 {
		t.Fatal("something was offered")
	}
	if got.Code != problem.Unsupported {
		t.Fatal(got)
	}
	// The plain copy starts all the same.
	copied(t, copier, wish(asked.Source))
}

func TestAConversionNeedsNoUpstreamRegistryWhereThePlainCopyIs(t *testing.T) {
	source, err := random.Image(1_000, 1)
	if err != nil {
		t.Fatal(err)
	}
	asked, copier, upstream, _ := lazily(t)
	asked.Source = upstream.push(t, "team/app", source)
	copied(t, copier, wish(asked.Source))
	upstream.forget()
	copied(t, copier, asked)
	if upstream.count("", "") != 0 {
		t.Fatal(upstream.asked)
	}
}

func TestWhatIsInThePrivateRegistryIsConvertedAsItIs(t *testing.T) {
	source, err := random.Image(1_000, 2)
	if err != nil {
		t.Fatal(err)
	}
	asked, copier, upstream, private := lazily(t)
	// By the name that nodes have for it.
	_, at, _ := strings.Cut(private.push(t, "commits/alice/builds", source), "/")
	asked.Source, asked.Through, asked.Target = "registry.internal:5000/"+at, "commits/alice/builds", "estargz/alice"
	private.forget()
	if made := copied(t, copier, asked); made.There || made.Digest == asked.Source[strings.Index(asked.Source, "@")+1:] {
		t.Fatal(made)
	}
	if upstream.count("", "") != 0 || private.count("PUT", "/commits/") != 0 || private.count("PUT", "/mirror/") != 0 {
		t.Fatal(upstream.asked, private.asked)
	}
	asked.Source = "registry.internal:5000/commits/alice/builds@sha256:" + strings.Repeat("0", 64)
	if got := refused(t, copier, asked); got.Code != problem.ImageNotFound {
		t.Fatal(got)
	}
}

func TestWhetherAConvertedCopyBootsIsKept(t *testing.T) {
	source, err := random.Image(1_000, 1)
	if err != nil {
		t.Fatal(err)
	}
	asked, copier, upstream, private := lazily(t)
	asked.Source = upstream.push(t, "team/app", source)
	_, digest, _ := strings.Cut(asked.Source, "@")
	find := &wire.FindRequest{Repository: "estargz/app", Reference: digest, Form: wire.ImageForm_ESTARGZ, Architectures: []string{"amd64"}}
	if _, err := copier.Find(t.Context(), find); problem.From(err).Code != problem.ImageNotFound {
		t.Fatal(err)
	}
	result := copied(t, copier, asked)
	judge := &wire.JudgeRequest{Repository: "estargz/app", Source: digest, Architectures: []string{"amd64"}, Digest: result.Digest}
	for _, step := range []struct {
		boots bool
		why   string
		boot  wire.FindReply_Boot
	}{
		{false, "it has no init", wire.FindReply_FAILED},
		{true, "", wire.FindReply_BOOTED},
		// One that has not started from what others have.
		{false, "an input/output error", wire.FindReply_BOOTED},
	} {
		judge.Boots, judge.Why = step.boots, step.why
		if step.boot == wire.FindReply_BOOTED {
			step.why = ""
		}
		if _, err := copier.Judge(t.Context(), judge); err != nil {
			t.Fatal(err)
		}
		// Another process, which knows only what the registry has.
		found, err := copierFor(t, upstream, private, time.Minute).Find(t.Context(), find)
		if err != nil || found.Digest != result.Digest || found.Boot != step.boot || found.Why != step.why {
			t.Fatal(found, err)
		}
	}
	judge.Digest = "sha256:" + strings.Repeat("0", 64)
	if _, err := copier.Judge(t.Context(), judge); err == nil {
		t.Fatal("something that is not there was judged")
	}
}

func TestWhatWasConvertedAnewIsNotJudgedYet(t *testing.T) {
	source, err := random.Image(1_000, 1)
	if err != nil {
		t.Fatal(err)
	}
	asked, copier, upstream, _ := lazily(t)
	asked.Source = upstream.push(t, "team/app", source)
	_, digest, _ := strings.Cut(asked.Source, "@")
	copied(t, copier, asked)
	// A verdict about something else that the repository has.
	at, err := name.NewTag(copier.Registry + "/estargz/app:other")
	if err != nil {
		t.Fatal(err)
	}
	pushed, err := random.Image(1_000, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(at, pushed); err != nil {
		t.Fatal(err)
	}
	elsewhere, _ := pushed.Digest()
	judge := &wire.JudgeRequest{Repository: "estargz/app", Source: digest, Architectures: []string{"amd64"}, Digest: elsewhere.String(), Boots: true}
	if _, err := copier.Judge(t.Context(), judge); err != nil {
		t.Fatal(err)
	}
	find := &wire.FindRequest{Repository: "estargz/app", Reference: digest, Form: wire.ImageForm_ESTARGZ, Architectures: []string{"amd64"}}
	found, err := copier.Find(t.Context(), find)
	if err != nil || found.Boot != wire.FindReply_BOOT_UNSPECIFIED {
		t.Fatal(found, err)
	}
}

func TestAFullDiskIsNobodysImage(t *testing.T) {
	err := fromConversion(fmt.Errorf("layer 1: %w", syscall.ENOSPC), "registry.example.com")
	if got := problem.From(err); got.Code != problem.CapacityUnavailable {
		t.Fatal(got)
	}
}

func TestAConversionThatBrokeOffGoesOnWhereItWas(t *testing.T) {
	source, err := random.Image(50_000, 3)
	if err != nil {
		t.Fatal(err)
	}
	asked, copier, upstream, private := lazily(t)
	asked.Source = upstream.push(t, "team/app", source)
	copied(t, copier, wish(asked.Source))
	private.forget()
	// From the top to the bottom.
	last := layerOf(t, source, 0)
	private.interfere(func(w http.ResponseWriter, r *http.Request) bool {
		away := r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, last)
		if away {
			w.WriteHeader(http.StatusInternalServerError)
		}
		return away
	})
	if got := refused(t, copier, asked); got.Code == problem.Unsupported {
		t.Fatal(got)
	}
	private.interfere(nil)
	private.forget()
	// As after a restart of the mirror, by another process, of which the folder is the same.
	next := copierFor(t, upstream, private, time.Minute)
	next.Forms, next.Folder, next.Scratch = copier.Forms, copier.Folder, 1<<30
	copied(t, next, asked)
	for number, want := range []int{1, 0, 0} {
		if got := private.count("GET", "blobs/"+layerOf(t, source, number)); got != want {
			t.Errorf("layer %d was read %d times", number, got)
		}
	}
	if left, err := os.ReadDir(copier.Folder); err != nil || len(left) != 0 {
		t.Fatal(left, err)
	}
}

func TestAConversionSaysThatItGoesOn(t *testing.T) {
	source, err := random.Image(500_000, 1)
	if err != nil {
		t.Fatal(err)
	}
	asked, copier, upstream, _ := lazily(t)
	asked.Source = upstream.push(t, "team/app", source)
	var most uint64
	_, err = copier.Copy(t.Context(), asked, func(now *wire.CopyProgress) error {
		if now.Phase == wire.CopyProgress_CONVERTING {
			most = max(most, now.DoneBytes)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	flight := &flight{changed: make(chan struct{})}
	flight.change(func(p *progress) { p.doneBytes += 7 })
	if now, _ := flight.look(); now.DoneBytes != 7 {
		t.Fatal(now)
	}
}

func TestAConvertedCopySaysItsArchitectures(t *testing.T) {
	source, err := random.Image(1_000, 1)
	if err != nil {
		t.Fatal(err)
	}
	config, err := source.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	config = config.DeepCopy()
	config.Architecture = "arm64"
	if source, err = mutate.ConfigFile(source, config); err != nil {
		t.Fatal(err)
	}
	asked, copier, upstream, _ := lazily(t)
	asked.Source = upstream.push(t, "team/app", source)
	// When it is made, and when it is there.
	for range 2 {
		if got := copied(t, copier, asked); !slices.Equal(got.Architectures, []string{"arm64"}) {
			t.Fatal(got)
		}
	}
}
