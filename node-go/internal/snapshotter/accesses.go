package snapshotter

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/containerd/log"
	"github.com/sirupsen/logrus"
)

// Access is the first access to a file of a layer.
type Access struct {
	Layer string `json:"layer"`
	Path  string `json:"path"`
}

// accessed is how the library's message about one begins.
const accessed = "file accessed: "

// recordAccesses appends what sandboxes open first to a file: the order in which an image is best read. The library
// tells it as messages of its log, so the log is where it is taken from.
func recordAccesses(path string) error {
	if path == "" {
		return nil
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("the file for accesses: %w", err)
	}
	logger := log.L.Logger
	quiet := logger.Level
	logger.AddHook(&accessHook{json.NewEncoder(file)})
	logger.SetLevel(logrus.DebugLevel)
	logger.SetFormatter(atMost{logger.Formatter, quiet})
	return nil
}

type accessHook struct{ encoder *json.Encoder }

func (h *accessHook) Levels() []logrus.Level { return []logrus.Level{logrus.DebugLevel} }

// Fire is called by one goroutine at a time: a logger locks its hooks' entries, and Encode writes a line at once.
func (h *accessHook) Fire(entry *logrus.Entry) error {
	path, found := strings.CutPrefix(entry.Message, accessed)
	if !found {
		return nil
	}
	layer, _ := entry.Data["layer"].(string)
	return h.encoder.Encode(Access{layer, path})
}

// atMost keeps the messages that only the hook is to see out of the log.
type atMost struct {
	inner logrus.Formatter
	level logrus.Level
}

func (f atMost) Format(entry *logrus.Entry) ([]byte, error) {
	if entry.Level > f.level {
		return nil, nil
	}
	return f.inner.Format(entry)
}
