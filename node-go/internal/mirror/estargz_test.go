package mirror

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"rollbox.dev/node/internal/convert"
	"rollbox.dev/node/internal/problem"
	"rollbox.dev/node/internal/wire"
)

func lazily(t *testing.T, at string) (*wire.CopyRequest, *Copier, *server, *server) {
	t.Helper()
	upstream, private := serve(t), serve(t)
	copier := copierFor(upstream, private, time.Minute)
	copier.Forms = map[wire.ImageForm]Converter{wire.ImageForm_ESTARGZ: ESTARGZ}
	copier.Folder = t.TempDir()
	asked := wish(at)
	asked.Form, asked.Target = wire.ImageForm_ESTARGZ, "estargz/app"
	return asked, copier, upstream, private
}

func TestAConvertedCopyNamesItsSource(t *testing.T) {
	source, err := random.Image(50_000, 3)
	if err != nil {
		t.Fatal(err)
	}
	asked, copier, upstream, private := lazily(t, "")
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
	if again := copied(t, copier, asked); !again.There || again.Digest != result.Digest {
		t.Fatal(again)
	}
	if left, err := os.ReadDir(copier.Folder); err != nil || len(left) != 0 {
		t.Fatal(left, err)
	}
}

func TestWhatIsNotConvertedIsRefusedAndOffersNothing(t *testing.T) {
	asked, copier, upstream, private := lazily(t, "")
	asked.Source = upstream.push(t, "team/app", image(t, "no tar"))
	got := refused(t, copier, asked)
	if private.count("PUT", "/manifests/") != 0 {
		t.Fatal("something was offered")
	}
	if got.Code != problem.Unsupported {
		t.Fatal(got)
	}
	// The plain copy starts all the same.
	asked.Form, asked.Target = wire.ImageForm_PLAIN, "mirror/app"
	copied(t, copier, asked)
}

func TestAFullDiskIsNobodysImage(t *testing.T) {
	err := fromConversion(fmt.Errorf("layer 1: %w", syscall.ENOSPC), "registry.example.com")
	if got := problem.From(err); got.Code != problem.CapacityUnavailable {
		t.Fatal(got)
	}
}
