package snapshotter

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"rollbox.dev/node/internal/telemetry"
)

// counts tells how layers came to the node.
type counts struct {
	registry *prometheus.Registry
	layers   *prometheus.CounterVec
	agains   *prometheus.CounterVec
}

func newCounts() *counts {
	registry := prometheus.NewRegistry()
	c := &counts{
		registry: registry,
		layers:   telemetry.SnapshotterLayers.CounterVec(registry),
		agains:   telemetry.SnapshotterRemounts.CounterVec(registry),
	}
	c.layers.WithLabelValues("lazy", "")
	for _, reason := range []string{ReasonUntrusted, ReasonPlain, ReasonRegistry, ReasonDenied, ReasonMounts} {
		c.layers.WithLabelValues("full", reason)
	}
	return c
}

func (c *counts) layer(err error) {
	var why *errNotLazy
	switch {
	case err == nil:
		c.layers.WithLabelValues("lazy", "").Inc()
	case errors.As(err, &why):
		c.layers.WithLabelValues("full", why.reason).Inc()
	}
}

func (c *counts) again(err error) {
	outcome := "mounted"
	if err != nil {
		outcome = "failed"
	}
	c.agains.WithLabelValues(outcome).Inc()
}

// withoutLayers gathers the library's metrics summed over layers: a node sees thousands of them, and a series each is
// more than a Prometheus should be asked to keep.
type withoutLayers struct{ inner prometheus.Gatherer }

func (w withoutLayers) Gather() ([]*dto.MetricFamily, error) {
	families, err := w.inner.Gather()
	for _, family := range families {
		family.Metric = summed(family)
	}
	return families, err
}

func summed(family *dto.MetricFamily) []*dto.Metric {
	var order []*dto.Metric
	byLabels := map[string]*dto.Metric{}
	for _, one := range family.Metric {
		labels, key := keptLabels(one.Label)
		into := byLabels[key]
		if into == nil {
			one.Label = labels
			byLabels[key] = one
			order = append(order, one)
			continue
		}
		add(into, one)
	}
	return order
}

func keptLabels(labels []*dto.LabelPair) (kept []*dto.LabelPair, key string) {
	for _, label := range labels {
		if name := label.GetName(); name != "layer" && name != "digest" && name != "mountpoint" {
			kept = append(kept, label)
			key += name + "\x00" + label.GetValue() + "\x00"
		}
	}
	return kept, key
}

func add(into, one *dto.Metric) {
	switch {
	case into.Counter != nil && one.Counter != nil:
		*into.Counter.Value += one.Counter.GetValue()
	case into.Gauge != nil && one.Gauge != nil:
		*into.Gauge.Value += one.Gauge.GetValue()
	case into.Histogram != nil && one.Histogram != nil:
		*into.Histogram.SampleCount += one.Histogram.GetSampleCount()
		*into.Histogram.SampleSum += one.Histogram.GetSampleSum()
		for i, bucket := range into.Histogram.Bucket {
			*bucket.CumulativeCount += one.Histogram.Bucket[i].GetCumulativeCount()
		}
	}
}
