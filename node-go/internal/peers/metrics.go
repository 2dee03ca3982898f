package peers

import "github.com/prometheus/client_golang/prometheus"

type counts struct {
	sent     prometheus.Counter
	received prometheus.Counter
	fetches  *prometheus.CounterVec
}

func newCounts(registry prometheus.Registerer) *counts {
	c := &counts{
		sent: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "rollbox_peers_sent_bytes_total", Help: "Bytes of layers that this node has sent to others.",
		}),
		received: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "rollbox_peers_received_bytes_total", Help: "Bytes of layers that others have sent to this node.",
		}),
		fetches: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rollbox_peers_fetches_total",
			Help: "Layers that came to this node: from a node, from the registry for others too, or failed at a node.",
		}, []string{"from"}),
	}
	registry.MustRegister(c.sent, c.received, c.fetches)
	for _, one := range []string{"node", "registry", "failed"} {
		c.fetches.WithLabelValues(one)
	}
	return c
}
