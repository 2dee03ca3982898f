package snapshotter

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/stargz-snapshotter/estargz"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"golang.org/x/sys/unix"

	"rollbox.dev/node/internal/broken"
	"rollbox.dev/node/internal/convert"
)

// readWithin bounds a read of a file that is fetched meanwhile: one that hangs is a failure.
const readWithin = time.Minute

// The real process that serves mounts, the kernel's FUSE and a real registry, whose disk has changed some bytes.
func TestAFileWhoseContentIsDamagedIsAnInputOutputErrorAndAllOthersAreRead(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting takes root")
	}
	content := map[string][]byte{"first": random(t, 1<<20), "second": random(t, 1<<20), "third": random(t, 1<<20)}
	layer, blob := converted(t, content)
	found, _ := open(t, blob).Lookup("second")
	damaged := bytes.Clone(blob)
	for at := found.Offset + 1<<19; at < found.Offset+1<<19+64; at++ {
		damaged[at] ^= 0xff
	}
	host := registryWith(t, layer, damaged)
	s := &Settings{
		Socket: filepath.Join(t.TempDir(), "s.sock"), MountsSocket: filepath.Join(t.TempDir(), "m.sock"), Root: t.TempDir(),
		Registries: t.TempDir(), Trusted: []string{host + "/"}, Level: "error",
	}
	client := mountsOf(t, s)
	mountpoint := filepath.Join(s.Root, "snapshotter", "snapshots", "1", "fs")
	if err := os.MkdirAll(mountpoint, 0o700); err != nil {
		t.Fatal(err)
	}
	before := failures(t)
	if err := client.Mount(t.Context(), mountpoint, labelsOf(t, host, layer)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(mountpoint, unix.MNT_DETACH) })
	for file, want := range content {
		got, err := readFile(t, filepath.Join(mountpoint, file))
		switch {
		case file == "second" && !errors.Is(err, syscall.EIO):
			t.Errorf("the damaged file: %d bytes, %v", len(got), err)
		case file != "second" && (err != nil || !bytes.Equal(got, want)):
			t.Errorf("%s: %d bytes, %v", file, len(got), err)
		}
	}
	if failures(t) <= before {
		t.Error("it is not counted")
	}
	digest, _ := layer.Digest()
	if why := broken.Read(s.MountsSocket)[digest.String()]; why == "" {
		t.Errorf("the agent is told %v", broken.Read(s.MountsSocket))
	}
}

func random(t *testing.T, size int) []byte {
	t.Helper()
	content := make([]byte, size)
	if _, err := rand.Read(content); err != nil {
		t.Fatal(err)
	}
	return content
}

// converted is a layer of these files as the mirror makes it, and its bytes.
func converted(t *testing.T, content map[string][]byte) (v1.Layer, []byte) {
	t.Helper()
	var archive bytes.Buffer
	writer := tar.NewWriter(&archive)
	for _, file := range []string{"first", "second", "third"} {
		header := &tar.Header{Name: file, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(content[file]))}
		if err := writer.WriteHeader(header); err != nil {
			t.Fatal(err)
		}
		if _, err := writer.Write(content[file]); err != nil {
			t.Fatal(err)
		}
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	plain, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(archive.Bytes())), nil })
	if err != nil {
		t.Fatal(err)
	}
	image, err := mutate.AppendLayers(empty.Image, plain)
	if err != nil {
		t.Fatal(err)
	}
	made, err := convert.Image(t.Context(), image, convert.Options{Folder: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	layers, err := made.Layers()
	if err != nil {
		t.Fatal(err)
	}
	file, err := layers[0].Compressed()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	blob, err := io.ReadAll(file)
	if err != nil {
		t.Fatal(err)
	}
	return layers[0], blob
}

func open(t *testing.T, blob []byte) *estargz.Reader {
	t.Helper()
	reader, err := estargz.Open(io.NewSectionReader(bytes.NewReader(blob), 0, int64(len(blob))))
	if err != nil {
		t.Fatal(err)
	}
	return reader
}

// registryWith is a registry that has a layer, and gives other bytes for it than it was given.
func registryWith(t *testing.T, layer v1.Layer, gives []byte) string {
	t.Helper()
	inner := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	digest, err := layer.Digest()
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/blobs/"+digest.String()) {
			http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(gives))
			return
		}
		inner.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	host := strings.TrimPrefix(server.URL, "http://")
	where, err := name.NewRepository(host+"/estargz/app", name.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.WriteLayer(where, layer); err != nil {
		t.Fatal(err)
	}
	return host
}

// mountsOf starts the process that serves mounts, within this one.
func mountsOf(t *testing.T, s *Settings) *mounts {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- Mounts(ctx, s) }()
	t.Cleanup(func() {
		stop()
		<-ended
	})
	client, err := dialMounts(s, newCounts())
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func labelsOf(t *testing.T, host string, layer v1.Layer) map[string]string {
	t.Helper()
	digest, err := layer.Digest()
	if err != nil {
		t.Fatal(err)
	}
	file, err := layer.Compressed()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	blob, err := io.ReadAll(file)
	if err != nil {
		t.Fatal(err)
	}
	reference := host + "/estargz/app:1"
	return map[string]string{
		labelReference: reference,
		labelTOC:       open(t, blob).TOCDigest().String(),
		"containerd.io/snapshot/remote/stargz.reference": reference,
		"containerd.io/snapshot/remote/stargz.digest":    digest.String(),
		"containerd.io/snapshot/remote/stargz.layers":    digest.String(),
	}
}

func readFile(t *testing.T, path string) ([]byte, error) {
	t.Helper()
	type answer struct {
		content []byte
		err     error
	}
	done := make(chan answer, 1)
	go func() {
		content, err := os.ReadFile(path)
		done <- answer{content, err}
	}()
	select {
	case one := <-done:
		return one.content, one.err
	case <-time.After(readWithin):
		t.Fatalf("a read of %s hangs", path)
		return nil, nil
	}
}

// failures is how many reads have failed for their content.
func failures(t *testing.T) float64 {
	t.Helper()
	families, err := prometheus.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != "rollbox_snapshotter_read_failures_total" {
			continue
		}
		for _, one := range family.Metric {
			if has(one, FailedContent) {
				return one.GetCounter().GetValue()
			}
		}
	}
	return 0
}

func has(one *dto.Metric, reason string) bool {
	for _, label := range one.Label {
		if label.GetValue() == reason {
			return true
		}
	}
	return false
}
