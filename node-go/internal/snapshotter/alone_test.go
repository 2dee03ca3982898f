package snapshotter

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestASecondProcessTakesNothingFromTheOneThatServes(t *testing.T) {
	folder := t.TempDir()
	s := &Settings{Root: folder, MountsSocket: filepath.Join(folder, "mounts.sock"), Accesses: filepath.Join(folder, "accesses"), Level: "info"}
	first, err := alone(s.Root)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(storePath(s.Root), []byte("the list of mounts"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := Mounts(ctx, s); err == nil || !strings.Contains(err.Error(), "another process serves the mounts in "+folder) {
		t.Errorf("%v", err)
	}
	if kept, err := os.ReadFile(storePath(s.Root)); err != nil || string(kept) != "the list of mounts" {
		t.Errorf("its list: %q, %v", kept, err)
	}
	if _, err := os.Stat(s.Accesses); err == nil {
		t.Error("it has opened the list of accesses")
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	next, err := alone(s.Root)
	if err != nil {
		t.Fatalf("after its end: %v", err)
	}
	_ = next.Close()
}
