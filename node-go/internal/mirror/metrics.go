package mirror

import (
	"github.com/prometheus/client_golang/prometheus"

	"rollbox.dev/node/internal/problem"
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
	m := &Metrics{
		copies: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rollbox_mirror_copies_total",
			Help: "Copies by outcome: copied, there, left (by all callers), or the outcome or code of the failure.",
		}, []string{"outcome"}),
		sent: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "rollbox_mirror_sent_bytes_total", Help: "Bytes that finished copies have sent to the private registry.",
		}),
		paused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "rollbox_mirror_pauses_total", Help: "Waits of copies for a registry that limits how often it is asked.",
		}),
	}
	registry.MustRegister(m.copies, m.sent, m.paused)
	return m
}

func (m *Metrics) over(result *wire.Copied, err error, left bool) {
	outcome := "copied"
	switch {
	case left:
		outcome = "left"
	case err != nil:
		found := problem.From(err)
		if outcome = found.Details["outcome"]; outcome == "" {
			outcome = string(found.Code)
		}
		if found.Details["side"] == "registry" {
			outcome = "registry"
		}
	case result.GetThere():
		outcome = "there"
	}
	m.copies.WithLabelValues(outcome).Inc()
	m.sent.Add(float64(result.GetSentBytes()))
}
