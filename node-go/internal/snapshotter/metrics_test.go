package snapshotter

import (
	"errors"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"rollbox.dev/node/doubles/telemetrytest"
)

func TestMetricsOfLayersAreSummed(t *testing.T) {
	registry := prometheus.NewRegistry()
	bytes := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "bytes", Help: "x"}, []string{"kind", "layer"})
	took := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "took", Help: "x", Buckets: []float64{1}}, []string{"layer"})
	registry.MustRegister(bytes, took)
	for _, layer := range []string{"a", "b", "c"} {
		bytes.WithLabelValues("read", layer).Set(2)
		took.WithLabelValues(layer).Observe(0.5)
	}
	want := `
		# HELP bytes x
		# TYPE bytes gauge
		bytes{kind="read"} 6
		# HELP took x
		# TYPE took histogram
		took_bucket{le="1"} 3
		took_bucket{le="+Inf"} 3
		took_sum 1.5
		took_count 3
	`
	if err := testutil.GatherAndCompare(withoutLayers{registry}, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

func TestWhatIsToldIsWhatTheTableSays(t *testing.T) {
	telemetrytest.Fits(t, newCounts().registry, "snapshotter")
}

func TestLayersAreCountedByHowTheyCame(t *testing.T) {
	c := newCounts()
	c.layer(nil)
	c.layer(&errNotLazy{ReasonPlain, errors.New("x")})
	c.layer(&errNotLazy{ReasonPlain, errors.New("x")})
	if got := testutil.ToFloat64(c.layers.WithLabelValues("lazy", "")); got != 1 {
		t.Errorf("lazy: %v", got)
	}
	if got := testutil.ToFloat64(c.layers.WithLabelValues("full", ReasonPlain)); got != 2 {
		t.Errorf("full: %v", got)
	}
}
