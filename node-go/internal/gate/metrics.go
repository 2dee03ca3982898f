package gate

import (
	"io"

	"github.com/prometheus/client_golang/prometheus"

	"rollbox.dev/node/internal/telemetry"
)

// What became of a request: the values of a label in contract/metrics.toml.
const (
	passed       = "passed"
	unauthorized = "unauthorized"
	denied       = "denied"
	unsupported  = "unsupported"
	busy         = "busy"
	unknown      = "unknown"
	account      = "account"
	large        = "large"
	away         = "away"
)

// Metrics count what agents ask.
type Metrics struct {
	requests *prometheus.CounterVec
	sent     prometheus.Counter
	uploads  prometheus.Gauge
}

// NewMetrics registers them.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	return &Metrics{
		requests: telemetry.MirrorCommitRequests.CounterVec(registry),
		sent:     telemetry.MirrorCommitSentBytes.Counter(registry),
		uploads:  telemetry.MirrorCommitUploads.Gauge(registry),
	}
}

// counted is a body whose bytes are counted as they go on.
type counted struct {
	io.ReadCloser
	sent prometheus.Counter
}

func (c counted) Read(into []byte) (int, error) {
	n, err := c.ReadCloser.Read(into)
	c.sent.Add(float64(n))
	return n, err
}
