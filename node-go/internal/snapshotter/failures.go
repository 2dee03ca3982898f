package snapshotter

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/containerd/log"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"

	"rollbox.dev/node/internal/broken"
	"rollbox.dev/node/internal/telemetry"
)

// Why a read of a sandbox failed: what the registry gave is not what the table of contents says, or it gave nothing.
const (
	FailedContent = "content"
	FailedFetch   = "fetch"
)

const (
	mostWhy = 512
	// How the library's message about a read that has failed begins; the error is beside it.
	failed = "statFile error"
)

// What the library and those that decompress for it say of content that is not as it should be.
var wrongContent = []string{"invalid chunk", "gzip:", "flate:", "zstd:", "not verified"}

// recordFailures counts reads of sandboxes that fail, and keeps the layers of which the content is at fault. The library
// tells it as messages of its log.
func recordFailures(socket string, into prometheus.Registerer) error {
	reads := telemetry.SnapshotterReadFailures.CounterVec(into)
	if err := os.MkdirAll(filepath.Dir(socket), 0o700); err != nil {
		return err
	}
	// Layers are mounted, and fetched, anew.
	file, err := os.OpenFile(filepath.Join(filepath.Dir(socket), broken.File), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("the file for broken layers: %w", err)
	}
	log.L.Logger.AddHook(&failureHook{reads: reads, encoder: json.NewEncoder(file), seen: map[string]bool{}})
	return nil
}

type failureHook struct {
	reads   *prometheus.CounterVec
	mu      sync.Mutex
	encoder *json.Encoder
	seen    map[string]bool
}

func (h *failureHook) Levels() []logrus.Level { return []logrus.Level{logrus.ErrorLevel} }

func (h *failureHook) Fire(entry *logrus.Entry) error {
	if entry.Message != failed {
		return nil
	}
	why := fmt.Sprint(entry.Data[logrus.ErrorKey])
	reason := reasonOf(why)
	h.reads.WithLabelValues(reason).Inc()
	layer := fmt.Sprint(entry.Data["digest"])
	h.mu.Lock()
	defer h.mu.Unlock()
	if reason != FailedContent || h.seen[layer] || len(h.seen) >= broken.Most {
		return nil
	}
	h.seen[layer] = true
	return h.encoder.Encode(broken.Layer{Digest: layer, Why: why[:min(mostWhy, len(why))]})
}

func reasonOf(why string) string {
	for _, one := range wrongContent {
		if strings.Contains(why, one) {
			return FailedContent
		}
	}
	return FailedFetch
}
