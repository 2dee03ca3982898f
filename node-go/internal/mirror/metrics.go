package mirror

import (
	"github.com/prometheus/client_golang/prometheus"

	"rollbox.dev/node/internal/problem"
	"rollbox.dev/node/internal/telemetry"
	"rollbox.dev/node/internal/wire"
)

// Metrics count what became of copies.
type Metrics struct {
	copies *prometheus.CounterVec
	sent   prometheus.Counter
	paused prometheus.Counter
}

// NewMetrics registers them.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	return &Metrics{
		copies: telemetry.MirrorCopies.CounterVec(registry),
		sent:   telemetry.MirrorSentBytes.Counter(registry),
		paused: telemetry.MirrorPauses.Counter(registry),
	}
}

func (m *Metrics) over(result *wire.Copied, err error, left bool) {
	m.copies.WithLabelValues(outcomeOf(result, err, left)).Inc()
	m.sent.Add(float64(result.GetSentBytes()))
}

func outcomeOf(result *wire.Copied, err error, left bool) string {
	switch {
	case left:
		return "left"
	case err == nil && result.GetThere():
		return "there"
	case err == nil:
		return "copied"
	}
	found := problem.From(err)
	if found.Details["side"] == "registry" {
		return "registry"
	}
	if told := found.Details["outcome"]; telemetry.MirrorCopies.Allows("outcome", told) {
		return told
	}
	switch found.Code {
	case problem.InvalidArgument, problem.Unsupported, problem.PayloadTooLarge, problem.ImageNotFound:
		return "refused"
	}
	return "failed"
}
