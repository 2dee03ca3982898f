package snapshotter

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/log"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/sirupsen/logrus"

	"rollbox.dev/node/internal/broken"
)

func TestReadsThatFailAreCountedAndBrokenLayersKept(t *testing.T) {
	logger := log.L.Logger
	hooks := logger.Hooks
	defer func() {
		logger.ReplaceHooks(hooks)
		logger.SetOutput(os.Stderr)
	}()
	logger.ReplaceHooks(logrus.LevelHooks{})
	logger.SetOutput(&strings.Builder{})
	socket := filepath.Join(t.TempDir(), "run", "mounts.sock")
	registry := prometheus.NewRegistry()
	if err := recordFailures(socket, registry); err != nil {
		t.Fatal(err)
	}
	for layer, why := range map[string]string{"sha256:1": "file.Read: invalid chunk: not verified", "sha256:2": "file.Read: unexpected status code 503"} {
		for range 2 {
			log.L.WithField("digest", layer).WithError(errors.New(why)).Error("statFile error")
		}
	}
	log.L.WithError(errors.New("gzip: invalid header")).Error("something else")
	want := `
# HELP rollbox_snapshotter_read_failures_total Reads of files of lazily mounted layers that failed: for their content, or since it was not fetched.
# TYPE rollbox_snapshotter_read_failures_total counter
rollbox_snapshotter_read_failures_total{reason="content"} 2
rollbox_snapshotter_read_failures_total{reason="fetch"} 2
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
	got, err := os.ReadFile(filepath.Join(filepath.Dir(socket), broken.File))
	if line := `{"layer":"sha256:1","why":"file.Read: invalid chunk: not verified"}` + "\n"; err != nil || string(got) != line {
		t.Errorf("got %q, %v", got, err)
	}
}
