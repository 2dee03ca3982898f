package snapshotter

import (
	"bufio"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"rollbox.dev/node/internal/process"
)

// mountPoint is the place of the mount point in a line of mountinfo.
const mountPoint = 4

// killReaders ends the sandboxes whose files came from mounts that nobody serves any more: one that goes on gets errors
// and SIGBUS at random, which look like results of the code that runs in it. Of a gVisor sandbox it is the gofer, the
// process that opens its files, without which the sandbox ends. Returns how many processes were killed.
func killReaders(proc string, dead []string) (int, error) {
	if len(dead) == 0 {
		return 0, nil
	}
	entries, err := os.ReadDir(proc)
	if err != nil {
		return 0, err
	}
	// The node's own processes see every mount, for whatever container it is.
	node := map[string]bool{namespaceOf(proc, "self"): true, namespaceOf(proc, "1"): true, "": true}
	killed := 0
	var failed []error
	for _, entry := range entries {
		pid, err := strconv.ParseUint(entry.Name(), 10, 31)
		if err != nil || node[namespaceOf(proc, entry.Name())] {
			continue
		}
		done, err := killIf(uint32(pid), func() bool {
			return readsFrom(filepath.Join(proc, entry.Name(), "mountinfo"), dead)
		})
		failed = append(failed, err)
		if done {
			killed++
		}
	}
	return killed, errors.Join(failed...)
}

// killIf kills the process that has a number now if it is one to be killed.
func killIf(pid uint32, one func() bool) (bool, error) {
	held, err := process.Hold(pid)
	if err != nil || held == nil {
		return false, err
	}
	defer held.Close()
	if !one() {
		return false, nil
	}
	err = held.Kill()
	return err == nil, err
}

// namespaceOf is empty for a process that has ended.
func namespaceOf(proc, pid string) string {
	name, err := os.Readlink(filepath.Join(proc, pid, "ns", "mnt"))
	if err != nil {
		return ""
	}
	return name
}

// readsFrom tells whether a process has an overlay of one of these folders as its root. Many see such overlays without
// reading from them: every namespace in which the node's mounts arrive, of a service or of a pod that watches the node.
func readsFrom(mountinfo string, dead []string) bool {
	file, err := os.Open(mountinfo)
	if err != nil {
		return false
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) < mountPoint+1 || fields[mountPoint] != "/" {
			continue
		}
		for _, lower := range lowerOf(fields[len(fields)-1]) {
			if slices.Contains(dead, lower) {
				return true
			}
		}
	}
	return false
}

// lowerOf returns the folders that an overlay shows. Of many, containerd gives the names below the folder of all
// snapshots, in which the overlay's upper one is too.
func lowerOf(options string) []string {
	given := map[string]string{}
	for option := range strings.SplitSeq(options, ",") {
		name, value, _ := strings.Cut(option, "=")
		given[name] = value
	}
	snapshots := filepath.Dir(filepath.Dir(given["upperdir"]))
	var folders []string
	for lower := range strings.SplitSeq(given["lowerdir"], ":") {
		if !filepath.IsAbs(lower) {
			lower = filepath.Join(snapshots, lower)
		}
		folders = append(folders, lower)
	}
	return folders
}
