package commit

import (
	"archive/tar"
	"context"
	"io"
	"net/http"
	"os"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/remote"

	"rollbox.dev/node/internal/problem"
)

func TestASandboxGoesOnBeforeTheRegistryHasTheLayer(t *testing.T) {
	w := newWorld(t)
	sent := 0
	w.refusing(func(r *http.Request) bool {
		if r.Method == http.MethodPatch {
			sent++
			if w.kernel.Standing() != 0 {
				t.Error("the sandbox stands still while its layer is sent")
			}
		}
		return false
	})
	if _, err := w.commit(context.Background()); err != nil || sent == 0 {
		t.Errorf("%v, sent %d times", err, sent)
	}
}

func TestNothingOfALayerHasANameOnTheNode(t *testing.T) {
	w := newWorld(t)
	w.kernel.Before["Fs.Read"] = func() {
		if left, err := os.ReadDir(w.commits.spool.folder); err != nil || len(left) > 0 {
			t.Errorf("%v, %v", left, err)
		}
	}
	if _, err := w.commit(context.Background()); err != nil {
		t.Fatal(err)
	}
	if spool := w.commits.spool; spool.taken != 0 || spool.written != 0 {
		t.Errorf("%d bytes are taken, %d written", spool.taken, spool.written)
	}
}

func TestANodeWithoutRoomSaysSoBeforeAnythingIsRead(t *testing.T) {
	w := newWorld(t)
	w.kernel.Before["Fs.Read"] = func() {
		if w.kernel.Standing() > 0 {
			t.Error("it was read")
		}
	}
	w.commits.spool.most = int64(len(content)) - 1
	w.fails(context.Background(), problem.CapacityUnavailable)
	if taken := w.commits.spool.taken; taken != 0 {
		t.Errorf("%d bytes are taken", taken)
	}
}

// The file has another path in each: all are there, in one layer.
func TestACheckpointOfACheckpointHasOneLayer(t *testing.T) {
	w := newWorld(t)
	transport := remote.WithTransport(w.server.Client().Transport)
	base, err := w.base.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	for round := range 3 {
		made, err := w.commit(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		got, err := remote.Image(w.reference("commits/alice/x:1"), transport)
		if err != nil {
			t.Fatal(err)
		}
		config, err := got.ConfigFile()
		layers, wrong := got.Layers()
		if err != nil || wrong != nil || len(layers) != 4 || len(config.RootFS.DiffIDs) != 4 || len(config.History) != len(base.History)+1 {
			t.Fatalf("round %d: %d layers, %+v, %v, %v", round, len(layers), config, err, wrong)
		}
		if names := namesIn(t, layers[3].Uncompressed); len(names) != 1 || names[0] != "file" {
			t.Errorf("round %d: %v", round, names)
		}
		w.asked.Base, w.asked.Squash = "commits/alice/x@"+made.Digest, true
	}
}

func namesIn(t *testing.T, open func() (io.ReadCloser, error)) (names []string) {
	t.Helper()
	content, err := open()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = content.Close() }()
	archive := tar.NewReader(content)
	for {
		header, err := archive.Next()
		if err == io.EOF {
			return names
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, header.Name)
	}
}
