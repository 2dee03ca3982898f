package snapshotter

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/containerd/log"
)

func TestAccessesGoToTheirFileAndNotToTheLog(t *testing.T) {
	logger := log.L.Logger
	formatter, level, hooks := logger.Formatter, logger.Level, logger.Hooks
	defer func() {
		logger.SetFormatter(formatter)
		logger.SetLevel(level)
		logger.ReplaceHooks(hooks)
		logger.SetOutput(os.Stderr)
	}()
	path := filepath.Join(t.TempDir(), "accesses")
	var written bytes.Buffer
	logger.SetOutput(&written)
	if err := recordAccesses(path); err != nil {
		t.Fatal(err)
	}
	log.L.WithField("layer", "sha256:1").Debug(accessed + "/usr/bin/python3")
	log.L.Debug("something else")
	if written.Len() > 0 {
		t.Errorf("the log has %q", written.String())
	}
	got, err := os.ReadFile(path)
	if want := `{"layer":"sha256:1","path":"/usr/bin/python3"}` + "\n"; err != nil || string(got) != want {
		t.Errorf("got %q, %v", got, err)
	}
}
