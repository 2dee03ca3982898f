package collector

import (
	"crypto/sha256"
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Older than what is young.
const old = 2 * time.Hour

// world is a registry's folder as Distribution writes it, and its collector, which waits for nothing.
type world struct {
	t *testing.T
	*Collector
	some func() // lets pushes go on
}

func newWorld(t *testing.T) *world {
	t.Helper()
	pace := Pace{Young: time.Hour, Idle: time.Hour}
	made, err := New(Options{Folder: t.TempDir(), Usual: pace, Urgent: pace, Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		t.Fatal(err)
	}
	return &world{t: t, Collector: made}
}

func (w *world) write(path string, content []byte) {
	w.t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(path, content, 0o644); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) there(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// blob is content in a repository.
func (w *world) blob(repository, content string) hash {
	h := hash(sha256.Sum256([]byte(content)))
	w.write(w.layout.blob(h), []byte(content))
	w.write(w.layout.layer(repository, h), []byte(h.String()))
	return h
}

func manifestOf(layers ...hash) []byte {
	var listed []descriptor
	for _, one := range layers {
		listed = append(listed, descriptor{one.String()})
	}
	text, _ := json.Marshal(map[string]any{"schemaVersion": 2, "layers": listed})
	return text
}

func indexOf(manifests ...hash) []byte {
	var listed []descriptor
	for _, one := range manifests {
		listed = append(listed, descriptor{one.String()})
	}
	text, _ := json.Marshal(map[string]any{"schemaVersion": 2, "manifests": listed})
	return text
}

// put puts a manifest under a tag, or under none.
func (w *world) put(repository, tag string, text []byte) hash {
	h := hash(sha256.Sum256(text))
	w.write(w.layout.blob(h), text)
	w.write(w.layout.revision(repository, h), []byte(h.String()))
	if tag != "" {
		w.write(filepath.Join(w.layout.tags(repository), tag, "current/link"), []byte(h.String()))
		w.write(filepath.Join(w.layout.tags(repository), tag, "index/sha256", h.hex(), "link"), []byte(h.String()))
	}
	return h
}

// image is one of layers with this content.
func (w *world) image(repository, tag string, layers ...string) hash {
	var made []hash
	for _, one := range layers {
		made = append(made, w.blob(repository, one))
	}
	return w.put(repository, tag, manifestOf(made...))
}

// age makes everything old.
func (w *world) age() {
	w.t.Helper()
	at := time.Now().Add(-old)
	err := filepath.Walk(w.layout.base(), func(path string, about os.FileInfo, err error) error {
		if err == nil && !about.IsDir() {
			return os.Chtimes(path, at, at)
		}
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) collect() Result {
	w.t.Helper()
	done, err := w.Collect(w.t.Context(), false)
	if err != nil {
		w.t.Fatal(err)
	}
	return done
}

func (w *world) measure() {
	used, err := size(w.t.Context(), w.layout.folder)
	if err != nil {
		w.t.Fatal(err)
	}
	w.usage.set(used)
}

func (w *world) has(content string) bool {
	return w.there(w.layout.blob(hash(sha256.Sum256([]byte(content)))))
}
