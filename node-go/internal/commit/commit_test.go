package commit

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	ours "github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/prometheus/client_golang/prometheus"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"rollbox.dev/node/doubles/gatetest"
	"rollbox.dev/node/doubles/played"
	"rollbox.dev/node/internal/containerd"
	"rollbox.dev/node/internal/gate"
	"rollbox.dev/node/internal/pods"
	"rollbox.dev/node/internal/problem"
	"rollbox.dev/node/internal/runsc"
	"rollbox.dev/node/internal/wire"
)

const (
	pod       = "5f2c9d0e"
	container = "0a1b2c"
	sandbox   = "sb-1"
	content   = "content"
)

// world is a node with one sandbox, and a registry.
type world struct {
	t       *testing.T
	kernel  *played.Kernel
	commits *Commits
	server  *httptest.Server
	base    v1.Image
	asked   *wire.CommitRequest

	mu     sync.Mutex
	refuse func(*http.Request) bool
}

func newWorld(t *testing.T) *world {
	t.Helper()
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	w := &world{t: t}
	inner := ours.New(ours.Logger(slog.NewLogLogger(log.Handler(), slog.LevelDebug)))
	w.server = httptest.NewTLSServer(http.HandlerFunc(func(answer http.ResponseWriter, request *http.Request) {
		w.mu.Lock()
		refuse := w.refuse
		w.mu.Unlock()
		if refuse != nil && refuse(request) {
			answer.WriteHeader(http.StatusInternalServerError)
			return
		}
		inner.ServeHTTP(answer, request)
	}))
	t.Cleanup(w.server.Close)
	var err error
	if w.base, err = random.Image(1000, 3); err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(w.reference("mirror/base:1"), w.base, remote.WithTransport(w.server.Client().Transport)); err != nil {
		t.Fatal(err)
	}
	node := &played.Containerd{
		Pods: []*cri.PodSandbox{{
			Id: pod, Metadata: &cri.PodSandboxMetadata{Name: sandbox, Namespace: "sandboxes"}, RuntimeHandler: "runsc",
			State: cri.PodSandboxState_SANDBOX_READY,
		}},
		Containers: []*cri.Container{{
			Id: container, PodSandboxId: pod, State: cri.ContainerState_CONTAINER_RUNNING,
			Labels: map[string]string{"io.kubernetes.container.name": "target"},
		}},
		Told: map[string]string{container: `{"runtimeSpec":{"mounts":[{"destination":"/etc/hosts","source":"/var/lib/kubelet/pods/x/etc-hosts"},
			{"destination":"/dev"},{"destination":"/data","source":"/var/lib/containerd/cri/containers/` + container + `/volumes/5e"},
			{"destination":"/dev/shm","source":"/var/lib/containerd/cri/containers/` + container + `/volumes/5f"}]}}`},
	}
	runtime, err := containerd.Open(node.Start(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = runtime.Close() })
	folder := t.TempDir()
	w.kernel = played.Serve(t, filepath.Join(folder, "runsc-"+pod+".sock"))
	w.kernel.Files["/file"], w.kernel.List = content, listing(t)
	kernels := runsc.New(folder, log)
	w.commits = New(&pods.Finder{Runtime: runtime, Namespace: "sandboxes", Handlers: []string{"runsc"}}, kernels, NewSpool(t.TempDir(), 1<<30), 512<<20, log)
	w.commits.LetGo(context.Background())
	digest, err := w.base.Digest()
	if err != nil {
		t.Fatal(err)
	}
	address := w.server.Listener.Addr().String()
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: w.server.Certificate().Raw})
	w.asked = &wire.CommitRequest{
		SandboxId: sandbox, Container: "target", Base: "mirror/base@" + digest.String(), Target: "commits/alice/x:1",
		MaxBytes: 1 << 20, StillMs: 30_000,
		Registry: &wire.Registry{
			Address: address, Connect: address, Authority: string(authority),
			Credentials: &wire.Credentials{Username: "push", Password: "p"},
		},
	}
	return w
}

// listing is that of one file, of one that a mount is at, and of a folder that was made for that.
func listing(t *testing.T) []byte {
	t.Helper()
	var listed bytes.Buffer
	archive := tar.NewWriter(&listed)
	put := func(kind byte, name string, size uint64) {
		var where []byte
		if kind == tar.TypeReg {
			where = append(binary.LittleEndian.AppendUint64(nil, size), make([]byte, 24)...)
		}
		if err := archive.WriteHeader(&tar.Header{Typeflag: kind, Name: name, Mode: 0o755, Size: int64(len(where))}); err != nil {
			t.Fatal(err)
		}
		if _, err := archive.Write(where); err != nil {
			t.Fatal(err)
		}
	}
	put(tar.TypeDir, "./", 0)
	put(tar.TypeDir, "./etc/", 0)
	put(tar.TypeReg, "./etc/hosts", 1)
	put(tar.TypeReg, "./file", uint64(len(content)))
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
	return listed.Bytes()
}

func (w *world) reference(text string) name.Reference {
	w.t.Helper()
	found, err := name.ParseReference(w.server.Listener.Addr().String() + "/" + text)
	if err != nil {
		w.t.Fatal(err)
	}
	return found
}

func (w *world) commit(ctx context.Context) (*wire.Committed, error) {
	return w.commits.Commit(ctx, w.asked, func(Progress) {})
}

// fails commits, which makes no image and leaves the sandbox as it was.
func (w *world) fails(ctx context.Context, want problem.Code) {
	w.t.Helper()
	made, err := w.commit(ctx)
	if err == nil || problem.From(err).Code != want {
		w.t.Errorf("%v, %v, want %s", made, err, want)
	}
	w.mu.Lock()
	w.refuse = nil
	w.mu.Unlock()
	w.unnamed()
}

func (w *world) unnamed() {
	w.t.Helper()
	if _, err := remote.Head(w.reference(w.asked.Target), remote.WithTransport(w.server.Client().Transport)); err == nil {
		w.t.Error("there is an image")
	}
	if w.kernel.Standing() != 0 {
		w.t.Error("the sandbox stands still")
	}
}

func (w *world) refusing(what func(*http.Request) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refuse = what
}

// throughGate has the agent go to a registry that knows an account alone by way of the mirror, with a token.
func (w *world) throughGate() {
	w.t.Helper()
	key := gatetest.New(w.t)
	metrics := gate.NewMetrics(prometheus.NewRegistry())
	made, err := gate.New(w.server.Listener.Addr().String(), key.Certificate, authn.Anonymous, w.server.Client().Transport, metrics)
	if err != nil {
		w.t.Fatal(err)
	}
	before := httptest.NewTLSServer(made)
	w.t.Cleanup(before.Close)
	at := w.asked.GetRegistry()
	at.Address, at.Connect = before.Listener.Addr().String(), before.Listener.Addr().String()
	at.Authority = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: before.Certificate().Raw}))
	rights := map[string][]string{"mirror/base": {"pull"}, "commits/alice/x": {"pull", "push", "delete"}}
	at.Credentials = &wire.Credentials{IdentityToken: key.Token(rights, nil)}
}

func TestACommitGoesByWayOfTheMirrorToARegistryThatKnowsNoTokens(t *testing.T) {
	w := newWorld(t)
	w.throughGate()
	made, err := w.commit(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	got, err := remote.Image(w.reference("commits/alice/x:1"), remote.WithTransport(w.server.Client().Transport))
	if err != nil {
		t.Fatal(err)
	}
	if digest, err := got.Digest(); err != nil || digest.String() != made.Digest {
		t.Errorf("%s, %s, %v", digest, made.Digest, err)
	}
	if layers, err := got.Layers(); err != nil || len(layers) != 4 {
		t.Errorf("%d layers, %v", len(layers), err)
	}
}

func TestByWayOfTheMirrorAnUploadThatBreaksOffIsEndedAndNoImageIsLeft(t *testing.T) {
	w := newWorld(t)
	w.throughGate()
	ended := make(chan struct{}, 8)
	w.refusing(func(request *http.Request) bool {
		if request.Method == http.MethodDelete {
			ended <- struct{}{}
		}
		return request.Method == http.MethodPatch
	})
	w.fails(context.Background(), problem.UpstreamTimeout)
	select {
	case <-ended:
	default:
		t.Error("what was sent stays in the registry")
	}
}

func TestAnImageIsItsOwnOneAndALayer(t *testing.T) {
	w := newWorld(t)
	made, err := w.commit(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	got, err := remote.Image(w.reference("commits/alice/x:1"), remote.WithTransport(w.server.Client().Transport))
	if err != nil {
		t.Fatal(err)
	}
	digest, err := got.Digest()
	if err != nil || digest.String() != made.Digest {
		t.Errorf("%s, %s, %v", digest, made.Digest, err)
	}
	layers, err := got.Layers()
	if err != nil || len(layers) != 4 {
		t.Fatalf("%d layers, %v", len(layers), err)
	}
	below, _ := w.base.Layers()
	for at := range below {
		a, _ := below[at].Digest()
		if b, _ := layers[at].Digest(); a != b {
			t.Errorf("layer %d is %s, not %s", at, b, a)
		}
	}
	text, err := layers[3].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	archive := tar.NewReader(text)
	header, err := archive.Next()
	if err != nil || header.Name != "file" {
		t.Fatalf("%v, %v", header, err)
	}
	if read, err := io.ReadAll(archive); err != nil || string(read) != content {
		t.Errorf("%q, %v", read, err)
	}
	if header, err := archive.Next(); err != io.EOF {
		t.Errorf("%v, %v", header, err)
	}
	config, err := got.ConfigFile()
	if err != nil || len(config.RootFS.DiffIDs) != 4 || config.History[len(config.History)-1].CreatedBy != "rollbox commit" {
		t.Errorf("%+v, %v", config, err)
	}
	if size, err := layers[3].Size(); err != nil || uint64(size) != made.SizeBytes || !slices.Equal(made.Skipped, []string{"/dev/shm: a volume that the image declares"}) {
		t.Errorf("%d, %v, %v", size, made, err)
	}
	if w.kernel.Standing() != 0 {
		t.Error("the sandbox stands still")
	}
}

func TestARegistryThatRefusesLeavesNoImage(t *testing.T) {
	for _, refused := range []func(*http.Request) bool{
		func(r *http.Request) bool { return r.Method == http.MethodPost && r.URL.Query().Get("mount") == "" },
		func(r *http.Request) bool { return r.Method == http.MethodPatch },
		func(r *http.Request) bool {
			return r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/manifests/")
		},
		func(*http.Request) bool { return true },
	} {
		w := newWorld(t)
		w.refusing(refused)
		w.fails(context.Background(), problem.UpstreamTimeout)
	}
}

func TestAnUploadThatBreaksOffIsEnded(t *testing.T) {
	w := newWorld(t)
	ended := make(chan string, 10)
	w.refusing(func(r *http.Request) bool {
		if r.Method == http.MethodDelete {
			ended <- r.URL.Path
		}
		return r.Method == http.MethodPatch
	})
	w.fails(context.Background(), problem.UpstreamTimeout)
	select {
	case path := <-ended:
		if !strings.HasPrefix(path, "/v2/commits/alice/x/blobs/uploads/") {
			t.Error(path)
		}
	default:
		t.Error("it was left")
	}
}

func TestAnImageWhoseNameMayBeThereIsWithdrawn(t *testing.T) {
	w := newWorld(t)
	withdrawn := 0
	w.refusing(func(r *http.Request) bool {
		if r.Method == http.MethodDelete {
			withdrawn++
		}
		return r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, "/manifests/1")
	})
	w.fails(context.Background(), problem.UpstreamTimeout)
	if withdrawn != 1 {
		t.Errorf("withdrawn %d times", withdrawn)
	}
	w.refusing(func(r *http.Request) bool {
		return r.Method == http.MethodDelete || r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, "/manifests/1")
	})
	if _, err := w.commit(context.Background()); err == nil || !strings.Contains(err.Error(), "is not known") {
		t.Error(err)
	}
}

func TestAKernelThatBreaksOffLeavesNoImage(t *testing.T) {
	w := newWorld(t)
	w.kernel.Files["/file"] = "short"
	w.fails(context.Background(), problem.Internal)
	w = newWorld(t)
	w.kernel.Answer["Fs.Read"] = "no"
	w.fails(context.Background(), problem.Internal)
	w = newWorld(t)
	w.kernel.Answer["containerManager.FSSave"] = "unknown method"
	w.fails(context.Background(), problem.Unsupported)
	w = newWorld(t)
	w.kernel.Answer["containerManager.FSSave"] = "no checkpointable filesystems"
	w.fails(context.Background(), problem.Unsupported)
	w = newWorld(t)
	w.kernel.List = []byte(strings.Repeat("x", 2000))
	w.fails(context.Background(), problem.Internal)
}

func TestACallThatIsCutLeavesNoImage(t *testing.T) {
	w := newWorld(t)
	ctx, cancel := context.WithCancel(context.Background())
	cut := make(chan struct{})
	w.kernel.Before["Fs.Read"] = func() {
		if w.kernel.Standing() == 1 {
			cancel()
			<-cut
		}
	}
	done := make(chan error, 1)
	go func() { _, err := w.commit(ctx); done <- err }()
	err := <-done
	close(cut)
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	w.unnamed()
}

func TestWhatIsRefusedBeforeTheSandboxStands(t *testing.T) {
	w := newWorld(t)
	w.kernel.Before["containerManager.Pause"] = func() { t.Error("it stood still") }
	w.asked.Base = "mirror/base@sha256:" + strings.Repeat("0", 64)
	w.fails(context.Background(), problem.ImageNotFound)
	w.asked.Base = "../base@sha256:" + strings.Repeat("0", 64)
	w.fails(context.Background(), problem.InvalidArgument)
	w.asked.Container = "other"
	w.fails(context.Background(), problem.SandboxLost)
	w.asked.SandboxId = "sb-2"
	w.fails(context.Background(), problem.SandboxNotFound)
}

func TestMoreThanItMayHave(t *testing.T) {
	w := newWorld(t)
	w.asked.MaxBytes = 100
	w.fails(context.Background(), problem.PayloadTooLarge)
}

func TestTwoAtOnceDoNotMeet(t *testing.T) {
	w := newWorld(t)
	var second error
	w.kernel.Before["containerManager.FSSave"] = func() { _, second = w.commit(context.Background()) }
	if _, err := w.commit(context.Background()); err != nil {
		t.Fatal(err)
	}
	if second == nil || problem.From(second).Code != problem.Conflict {
		t.Error(second)
	}
}
