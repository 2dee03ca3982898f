// Package telemetry makes the metrics of contract/metrics.toml, and serves them.
package telemetry

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Family is a metric of the table.
type Family struct {
	Part, Name, Help string
	Labels           []Label
	Buckets          []float64
}

// Label is a label with all values that it may have.
type Label struct {
	Name   string
	Values []string
}

func (f *Family) labels() (names []string) {
	for _, label := range f.Labels {
		names = append(names, label.Name)
	}
	return names
}

// CounterVec registers it. Where it has one label, all its series exist from the start.
func (f *Family) CounterVec(to prometheus.Registerer) *prometheus.CounterVec {
	made := prometheus.NewCounterVec(prometheus.CounterOpts{Name: f.Name, Help: f.Help}, f.labels())
	to.MustRegister(made)
	f.each(func(value string) { made.WithLabelValues(value) })
	return made
}

// Counter registers it.
func (f *Family) Counter(to prometheus.Registerer) prometheus.Counter {
	made := prometheus.NewCounter(prometheus.CounterOpts{Name: f.Name, Help: f.Help})
	to.MustRegister(made)
	return made
}

// GaugeVec registers it; none of its series exists before it is set.
func (f *Family) GaugeVec(to prometheus.Registerer) *prometheus.GaugeVec {
	made := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: f.Name, Help: f.Help}, f.labels())
	to.MustRegister(made)
	return made
}

// Gauge registers it.
func (f *Family) Gauge(to prometheus.Registerer) prometheus.Gauge {
	made := prometheus.NewGauge(prometheus.GaugeOpts{Name: f.Name, Help: f.Help})
	to.MustRegister(made)
	return made
}

// HistogramVec registers it. Where it has one label, all its series exist from the start.
func (f *Family) HistogramVec(to prometheus.Registerer) *prometheus.HistogramVec {
	made := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: f.Name, Help: f.Help, Buckets: f.Buckets}, f.labels())
	to.MustRegister(made)
	f.each(func(value string) { made.WithLabelValues(value) })
	return made
}

func (f *Family) each(series func(value string)) {
	if len(f.Labels) == 1 {
		for _, value := range f.Labels[0].Values {
			series(value)
		}
	}
}

// Allows tells whether a label may have a value.
func (f *Family) Allows(label, value string) bool {
	for _, one := range f.Labels {
		for _, allowed := range one.Values {
			if one.Name == label && allowed == value {
				return true
			}
		}
	}
	return false
}

// Handler answers scrapes. Not as OpenMetrics: there the Go runtime's own metrics, which the process that serves mounts has
// too, would give two families one name.
func Handler(from prometheus.Gatherer) http.Handler {
	return promhttp.HandlerFor(from, promhttp.HandlerOpts{})
}

// Serve answers GET /metrics on the address until the context ends; at once when there is none.
func Serve(ctx context.Context, address string, from prometheus.Gatherer) error {
	if address == "" {
		return nil
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	routes := http.NewServeMux()
	routes.Handle("GET /metrics", Handler(from))
	server := &http.Server{
		Handler: routes, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, MaxHeaderBytes: 16 << 10,
		IdleTimeout: 2 * time.Minute,
	}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
