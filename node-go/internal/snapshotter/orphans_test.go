package snapshotter

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

func process(t *testing.T, proc, pid, namespace, lower string) {
	t.Helper()
	folder := filepath.Join(proc, pid)
	if err := os.MkdirAll(filepath.Join(folder, "ns"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(namespace, filepath.Join(folder, "ns", "mnt")); err != nil {
		t.Fatal(err)
	}
	line := fmt.Sprintf("1 0 0:60 / / ro - overlay overlay rw,lowerdir=%s,upperdir=/u,workdir=/w\n", lower)
	if err := os.WriteFile(filepath.Join(folder, "mountinfo"), []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
}

func sleeper(t *testing.T) (pid string, ended chan struct{}) {
	t.Helper()
	command := exec.Command("sleep", "60")
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = command.Process.Kill() })
	ended = make(chan struct{})
	go func() { _ = command.Wait(); close(ended) }()
	return strconv.Itoa(command.Process.Pid), ended
}

func TestWhatReadsFromADeadMountIsKilledAndNothingElse(t *testing.T) {
	proc := t.TempDir()
	reader, readerEnded := sleeper(t)
	other, otherEnded := sleeper(t)
	node, nodeEnded := sleeper(t)
	process(t, proc, "self", "mnt:[1]", "")
	process(t, proc, "1", "mnt:[2]", "/s/3/fs")
	process(t, proc, reader, "mnt:[3]", "/s/9/fs:/s/3/fs")
	process(t, proc, other, "mnt:[4]", "/s/33/fs:/s/3/fsx")
	process(t, proc, node, "mnt:[2]", "/s/3/fs")
	killed, err := killReaders(proc, []string{"/s/3/fs"})
	if killed != 1 || err != nil {
		t.Errorf("killed %d, %v", killed, err)
	}
	select {
	case <-readerEnded:
	case <-time.After(10 * time.Second):
		t.Error("the reader goes on")
	}
	select {
	case <-otherEnded:
		t.Error("one that reads from elsewhere was killed")
	case <-nodeEnded:
		t.Error("a process of the node was killed")
	default:
	}
}
