package peers

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"rollbox.dev/node/doubles/telemetrytest"
)

func TestWhatIsToldIsWhatTheTableSays(t *testing.T) {
	registry := prometheus.NewRegistry()
	told := newCounts(registry)
	for _, one := range []string{"node", "registry", "failed"} {
		told.fetches.WithLabelValues(one).Inc()
	}
	telemetrytest.Fits(t, registry, "peers")
}
