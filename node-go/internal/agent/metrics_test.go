package agent

import (
	"context"
	"io"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"rollbox.dev/node/doubles/played"
	"rollbox.dev/node/doubles/telemetrytest"
	"rollbox.dev/node/internal/containerd"
	"rollbox.dev/node/internal/images"
	"rollbox.dev/node/internal/telemetry"
	"rollbox.dev/node/internal/wire"
)

func TestWhatIsToldIsWhatTheTableSays(t *testing.T) {
	m := newMetrics()
	for _, method := range wire.Node_ServiceDesc.Methods {
		m.over("/rollbox.node.v1.Node/"+method.MethodName, nil, 0)
	}
	for _, stream := range wire.Node_ServiceDesc.Streams {
		m.over("/rollbox.node.v1.Node/"+stream.StreamName, status.Error(codes.Canceled, "x"), 0)
	}
	m.part("mounts", true)
	telemetrytest.Fits(t, m.registry, "node")
	offered := len(wire.Node_ServiceDesc.Methods) + len(wire.Node_ServiceDesc.Streams)
	if told := len(telemetry.NodeCallSeconds.Labels[0].Values); told != offered {
		t.Errorf("the table has %d calls, the service %d", told, offered)
	}
}

func TestALookTellsWhetherContainerdAnswers(t *testing.T) {
	runtime := &played.Containerd{}
	m := newMetrics()
	m.lookOnce(context.Background(), looking(t, runtime.Start(t)))
	if testutil.ToFloat64(m.healthy.WithLabelValues("containerd")) != 1 || testutil.ToFloat64(m.size) == 0 {
		t.Error("containerd answers, and the look says that it does not")
	}
	m.lookOnce(context.Background(), looking(t, filepath.Join(t.TempDir(), "nobody.sock")))
	if testutil.ToFloat64(m.healthy.WithLabelValues("containerd")) != 0 || testutil.ToFloat64(m.troubles) == 0 {
		t.Error("containerd does not answer, and the look says that it does")
	}
}

func looking(t *testing.T, socket string) *service {
	t.Helper()
	opened, err := containerd.Open(socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = opened.Close() })
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	settings := &Settings{Handlers: []string{"runsc"}, Images: "/", Pulls: 1}
	use := images.NewUse()
	return newService(settings, opened, use, images.NewPullMarks(opened, "s", log), log)
}
