package usage

import (
	"os"
	"path/filepath"
	"testing"
)

// node is a played /proc and /sys/fs/cgroup.
func node(t *testing.T, files map[string]string) (proc, root string) {
	t.Helper()
	folder := t.TempDir()
	for name, text := range files {
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(folder, "proc"), filepath.Join(folder, "groups")
}

var (
	of1 = map[string]string{
		"proc/7/cgroup": "9:name=systemd:/x\n8:pids:/kubepods/a\n4:memory:/kubepods/a\n3:cpu,cpuacct:/kubepods/a\n0::/\n",
		"groups/cpu,cpuacct/kubepods/a/cpuacct.usage":    "1234567\n",
		"groups/memory/kubepods/a/memory.usage_in_bytes": "1000\n",
		"groups/memory/kubepods/a/memory.stat":           "cache 400\ninactive_file 1\ntotal_inactive_file 300\n",
		"groups/pids/kubepods/a/pids.current":            "84\n",
	}
	of2 = map[string]string{
		"proc/7/cgroup":                    "0::/kubepods/a\n",
		"groups/cgroup.controllers":        "cpu memory pids\n",
		"groups/kubepods/a/cpu.stat":       "usage_usec 1234\nuser_usec 1000\n",
		"groups/kubepods/a/memory.current": "1000\n",
		"groups/kubepods/a/memory.stat":    "file 400\ninactive_file 300\n",
		"groups/kubepods/a/pids.current":   "84\n",
	}
)

func TestBothVersionsOfControlGroupsAreRead(t *testing.T) {
	for want, files := range map[Usage]map[string]string{
		{1234567, 700, 84}: of1,
		{1234000, 700, 84}: of2,
	} {
		proc, root := node(t, files)
		if got, err := of(proc, root, 7); err != nil || got != want {
			t.Errorf("%v, %v; want %v", got, err, want)
		}
	}
}

func TestWhatIsNotThereIsAnErrorAndNotNothing(t *testing.T) {
	for _, files := range []map[string]string{of1, of2} {
		for missing := range files {
			proc, root := node(t, files)
			if err := os.Remove(filepath.Join(filepath.Dir(proc), missing)); err != nil {
				t.Fatal(err)
			}
			if got, err := of(proc, root, 7); err == nil {
				t.Errorf("without %s: %v", missing, got)
			}
		}
	}
}

func TestMorePagesToTakeBackThanPagesAreNoNegativeNumber(t *testing.T) {
	files := map[string]string{}
	for name, text := range of2 {
		files[name] = text
	}
	files["groups/kubepods/a/memory.current"] = "100\n"
	proc, root := node(t, files)
	if got, err := of(proc, root, 7); err != nil || got.MemoryBytes != 0 {
		t.Errorf("%v, %v", got, err)
	}
}

func TestAShareIsAnEqualPart(t *testing.T) {
	if got := (Usage{10, 20, 30}).Share(2); got != (Usage{5, 10, 15}) {
		t.Error(got)
	}
}
