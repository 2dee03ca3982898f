package snapshotter

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

func played(t *testing.T, proc, pid, namespace string, mounts ...string) {
	t.Helper()
	folder := filepath.Join(proc, pid)
	if err := os.MkdirAll(filepath.Join(folder, "ns"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(namespace, filepath.Join(folder, "ns", "mnt")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "mountinfo"), []byte(strings.Join(mounts, "")), 0o600); err != nil {
		t.Fatal(err)
	}
}

func overlay(at, lower string) string {
	return fmt.Sprintf("1 0 0:60 / %s ro,nosuid - overlay overlay rw,lowerdir=%s,upperdir=/s/7/fs,workdir=/s/7/work,index=off\n", at, lower)
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
	long, longEnded := sleeper(t)
	other, otherEnded := sleeper(t)
	node, nodeEnded := sleeper(t)
	watcher, watcherEnded := sleeper(t)
	played(t, proc, "self", "mnt:[1]")
	played(t, proc, "1", "mnt:[2]", overlay("/run/task/a/rootfs", "/s/3/fs"))
	played(t, proc, reader, "mnt:[3]", overlay("/", "/s/9/fs:/s/3/fs"))
	played(t, proc, long, "mnt:[4]", overlay("/", "9/fs:3/fs"))
	played(t, proc, other, "mnt:[5]", overlay("/", "/s/33/fs:/s/3/fsx:33/fs"))
	played(t, proc, node, "mnt:[2]", overlay("/", "/s/3/fs"))
	// A service of its own namespace, in which the node's mounts arrive.
	played(t, proc, watcher, "mnt:[6]", "1 0 254:0 / / rw - ext4 /dev/vda rw\n", overlay("/run/task/a/rootfs", "/s/9/fs:/s/3/fs"))
	killed, err := killReaders(proc, []string{"/s/3/fs"})
	if killed != 2 || err != nil {
		t.Errorf("killed %d, %v", killed, err)
	}
	for _, ended := range []chan struct{}{readerEnded, longEnded} {
		select {
		case <-ended:
		case <-time.After(10 * time.Second):
			t.Error("a reader goes on")
		}
	}
	select {
	case <-otherEnded:
		t.Error("one that reads from elsewhere was killed")
	case <-nodeEnded:
		t.Error("a process of the node was killed")
	case <-watcherEnded:
		t.Error("one that only sees the mounts was killed")
	default:
	}
}
