package mirror

import (
	"errors"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"rollbox.dev/node/doubles/telemetrytest"
	"rollbox.dev/node/internal/gate"
	"rollbox.dev/node/internal/problem"
	"rollbox.dev/node/internal/wire"
)

func TestWhatIsToldIsWhatTheTableSays(t *testing.T) {
	registry := prometheus.NewRegistry()
	metrics := NewMetrics(registry)
	// Of the same process.
	gate.NewMetrics(registry)
	for _, ends := range []struct {
		result *wire.Copied
		err    error
		left   bool
		want   string
	}{
		{&wire.Copied{SentBytes: 5}, nil, false, "copied"},
		{&wire.Copied{There: true}, nil, false, "there"},
		{nil, errors.New("x"), true, "left"},
		{nil, errors.New("x"), false, "failed"},
		{nil, problem.New(problem.Unsupported, "x"), false, "refused"},
		{nil, problem.New(problem.ImagePullFailed, "x").With("outcome", "limited"), false, "limited"},
		{nil, problem.New(problem.ImagePullFailed, "x").With("outcome", "unheard of"), false, "failed"},
		{nil, problem.New(problem.ImagePullFailed, "x").With("outcome", "away").With("side", "registry"), false, "registry"},
	} {
		if got := outcomeOf(ends.result, ends.err, ends.left); got != ends.want {
			t.Errorf("%v: %s, not %s", ends, got, ends.want)
		}
		metrics.over(ends.result, ends.err, ends.left)
	}
	telemetrytest.Fits(t, registry, "mirror")
}
