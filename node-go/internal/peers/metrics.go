package peers

import (
	"github.com/prometheus/client_golang/prometheus"

	"rollbox.dev/node/internal/telemetry"
)

type counts struct {
	sent     prometheus.Counter
	received prometheus.Counter
	fetches  *prometheus.CounterVec
}

func newCounts(registry prometheus.Registerer) *counts {
	return &counts{
		sent:     telemetry.PeersSentBytes.Counter(registry),
		received: telemetry.PeersReceivedBytes.Counter(registry),
		fetches:  telemetry.PeersFetches.CounterVec(registry),
	}
}
