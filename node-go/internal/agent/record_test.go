package agent

import (
	"errors"
	"io"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"rollbox.dev/node/doubles/played"
	"rollbox.dev/node/internal/containerd"
	"rollbox.dev/node/internal/pods"
	"rollbox.dev/node/internal/problem"
	"rollbox.dev/node/internal/wire"
)

var target = strings.Repeat("ab", 32)

// sandbox is a containerd that has one, whose container is to be recorded.
func sandbox() *played.Containerd {
	labels := map[string]string{"io.kubernetes.pod.name": "sb-1", "io.kubernetes.pod.namespace": "rollbox-sandboxes"}
	return &played.Containerd{
		Pods: []*cri.PodSandbox{{
			Id: "pod", Metadata: &cri.PodSandboxMetadata{Name: "sb-1", Namespace: "rollbox-sandboxes"}, Labels: labels,
			RuntimeHandler: "runsc", State: cri.PodSandboxState_SANDBOX_READY,
		}},
		Containers: []*cri.Container{{
			Id: target, PodSandboxId: "pod", State: cri.ContainerState_CONTAINER_RUNNING,
			Labels: map[string]string{"io.kubernetes.container.name": "target"},
		}},
		Told: map[string]string{target: `{"runtimeSpec":{"mounts":[]}}`},
	}
}

// recorder is a snapshotter that plays what a test tells it.
type recorder struct {
	wire.UnimplementedRecorderServer
	refused error
	asked   chan string
}

func (r *recorder) Record(stream grpc.BidiStreamingServer[wire.ContainerRecordRequest, wire.Recording]) error {
	asked, err := stream.Recv()
	if err != nil {
		return err
	}
	if r.refused != nil {
		return r.refused
	}
	r.asked <- asked.GetContainerId()
	if err := stream.Send(&wire.Recording{Is: &wire.Recording_Begun_{Begun: &wire.Recording_Begun{}}}); err != nil {
		return err
	}
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		r.asked <- "left"
		return err
	}
	opened := &wire.Recording_Opened{Paths: []string{"/a", "/b"}, More: true}
	return stream.Send(&wire.Recording{Is: &wire.Recording_Opened_{Opened: opened}})
}

func (r *recorder) start(t *testing.T) string {
	t.Helper()
	r.asked = make(chan string, 2)
	folder := t.TempDir()
	listener, err := net.Listen("unix", filepath.Join(folder, snapshotterSocket))
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	wire.RegisterRecorderServer(server, r)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return filepath.Join(folder, "mounts.sock")
}

func record(t *testing.T, mounts string, asked *wire.RecordRequest) (grpc.BidiStreamingClient[wire.RecordRequest, wire.Recording], error) {
	t.Helper()
	stream, err := serve(t, sandbox(), func(s *Settings) { s.Mounts = mounts }).controlPlane(t).Record(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(asked); err != nil {
		t.Fatal(err)
	}
	_, err = stream.Recv()
	return stream, err
}

func TestARecordingIsOfTheContainerThatASandboxHas(t *testing.T) {
	snapshotter := &recorder{}
	stream, err := record(t, snapshotter.start(t), &wire.RecordRequest{SandboxId: "sb-1", Container: "target"})
	if err != nil || <-snapshotter.asked != target {
		t.Fatal(err)
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	told, err := stream.Recv()
	if err != nil || !slices.Equal(told.GetOpened().GetPaths(), []string{"/a", "/b"}) || !told.GetOpened().GetMore() {
		t.Fatal(told, err)
	}
}

func TestAContainerThatIsAboutToRunIsWaitedFor(t *testing.T) {
	runtime := sandbox()
	runtime.Containers[0].State = cri.ContainerState_CONTAINER_CREATED
	s := &service{pods: &pods.Finder{Namespace: "rollbox-sandboxes", Handlers: []string{"runsc"}}}
	opened, err := containerd.Open(runtime.Start(t))
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	s.pods.Runtime = opened
	go func() {
		runtime.Mutex.Lock()
		defer runtime.Mutex.Unlock()
		runtime.Containers = sandbox().Containers
	}()
	found, err := s.pods.Container(t.Context(), "sb-1", "target")
	if err != nil || found.ID != target {
		t.Fatal(found, err)
	}
}

func TestARecordingIsRefusedByAReasonThatAUserCanBeTold(t *testing.T) {
	right := &wire.RecordRequest{SandboxId: "sb-1", Container: "target"}
	for name, one := range map[string]struct {
		refused error
		asked   *wire.RecordRequest
		code    problem.Code
	}{
		"no such sandbox":     {nil, &wire.RecordRequest{SandboxId: "sb-2", Container: "target"}, problem.SandboxNotFound},
		"no such container":   {nil, &wire.RecordRequest{SandboxId: "sb-1", Container: "sidecar"}, problem.SandboxLost},
		"no container":        {nil, &wire.RecordRequest{SandboxId: "sb-1"}, problem.InvalidArgument},
		"pulled whole":        {status.Error(codes.NotFound, "no container"), right, problem.Unsupported},
		"an old snapshotter":  {status.Error(codes.Unimplemented, "unknown service"), right, problem.Unsupported},
		"too many":            {status.Error(codes.ResourceExhausted, "4 are"), right, problem.CapacityUnavailable},
		"it is being stopped": {status.Error(codes.Unavailable, "closing"), right, problem.UpstreamTimeout},
	} {
		stream, err := record(t, (&recorder{refused: one.refused}).start(t), one.asked)
		if found := problem.Received(stream.Trailer()); err == nil || found == nil || found.Code != one.code {
			t.Errorf("%s: %v, %v", name, err, found)
		}
	}
	stream, err := record(t, "", right)
	if found := problem.Received(stream.Trailer()); err == nil || found == nil || found.Details["value"] != "lazyPulling.enabled" {
		t.Error(err, found)
	}
	stream, err = record(t, filepath.Join(t.TempDir(), "mounts.sock"), right)
	if found := problem.Received(stream.Trailer()); err == nil || found == nil || found.Code != problem.UpstreamTimeout {
		t.Error(err, found)
	}
}
