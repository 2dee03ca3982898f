package agent

import (
	"context"
	"path"
	"path/filepath"
	"strings"
	"time"
	"unicode"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"rollbox.dev/node/internal/problem"
	"rollbox.dev/node/internal/telemetry"
)

// How often the agent looks whether sandboxes can start on its node, and how long one look may take.
const (
	looksEvery = 15 * time.Second
	looksFor   = 10 * time.Second
)

// metrics tell of the calls of the control plane and of the node's health. Nothing in them names an image or a sandbox.
type metrics struct {
	registry *prometheus.Registry
	calls    *prometheus.CounterVec
	took     *prometheus.HistogramVec
	healthy  *prometheus.GaugeVec
	troubles prometheus.Gauge
	free     prometheus.Gauge
	size     prometheus.Gauge
}

func newMetrics() *metrics {
	registry := prometheus.NewRegistry()
	m := &metrics{
		registry: registry,
		calls:    telemetry.NodeCalls.CounterVec(registry),
		took:     telemetry.NodeCallSeconds.HistogramVec(registry),
		healthy:  telemetry.NodePartHealthy.GaugeVec(registry),
		troubles: telemetry.NodeTroubles.Gauge(registry),
		free:     telemetry.NodeImagesFreeBytes.Gauge(registry),
		size:     telemetry.NodeImagesSizeBytes.Gauge(registry),
	}
	for _, call := range telemetry.NodeCalls.Labels[0].Values {
		for _, outcome := range telemetry.NodeCalls.Labels[1].Values {
			m.calls.WithLabelValues(call, outcome)
		}
	}
	return m
}

func (m *metrics) unary(ctx context.Context, request any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	began := time.Now()
	answer, err := next(ctx, request)
	m.over(info.FullMethod, err, time.Since(began))
	return answer, err
}

func (m *metrics) stream(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	began := time.Now()
	err := next(server, stream)
	m.over(info.FullMethod, err, time.Since(began))
	return err
}

func (m *metrics) over(method string, err error, took time.Duration) {
	call := snake(path.Base(method))
	m.calls.WithLabelValues(call, outcomeOf(err)).Inc()
	if err == nil {
		m.took.WithLabelValues(call).Observe(took.Seconds())
	}
}

// outcomeOf tells whose fault a failure is, by its gRPC status.
func outcomeOf(err error) string {
	switch status.Code(err) {
	case codes.OK:
		return "ok"
	case codes.Canceled:
		return "gone"
	case codes.InvalidArgument, codes.NotFound, codes.FailedPrecondition, codes.Aborted, codes.ResourceExhausted, codes.Unimplemented,
		codes.PermissionDenied, codes.Unauthenticated, codes.AlreadyExists, codes.OutOfRange:
		return "refused"
	}
	return "failed"
}

// snake returns remove_image for RemoveImage.
func snake(name string) string {
	var made strings.Builder
	for i, letter := range name {
		if unicode.IsUpper(letter) && i > 0 {
			made.WriteByte('_')
		}
		made.WriteRune(unicode.ToLower(letter))
	}
	return made.String()
}

// look sees again and again whether sandboxes can start here, until the context ends.
func (m *metrics) look(ctx context.Context, s *service) {
	tick := time.NewTicker(looksEvery)
	defer tick.Stop()
	for {
		m.lookOnce(ctx, s)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (m *metrics) lookOnce(ctx context.Context, s *service) {
	ctx, cancel := context.WithTimeout(ctx, looksFor)
	defer cancel()
	m.troubles.Set(float64(len(s.health(ctx).GetTroubles())))
	_, err := s.runtime.Snapshotter(ctx, s.settings.Handlers[0])
	m.part("containerd", err == nil || problem.From(err).Code != problem.UpstreamTimeout)
	snapshotters := true
	for _, handler := range s.settings.Handlers {
		snapshotters = snapshotters && s.snapshotterTrouble(ctx, handler) == ""
	}
	if s.settings.Mounts != "" {
		snapshotters = snapshotters && answers(ctx, filepath.Join(filepath.Dir(s.settings.Mounts), snapshotterSocket))
		m.part("mounts", answers(ctx, s.settings.Mounts))
	}
	m.part("snapshotter", snapshotters)
	if free, size := room(s.settings.Images); free != nil {
		m.free.Set(float64(*free))
		m.size.Set(float64(*size))
	}
}

func (m *metrics) part(name string, healthy bool) {
	value := 0.0
	if healthy {
		value = 1
	}
	m.healthy.WithLabelValues(name).Set(value)
}
