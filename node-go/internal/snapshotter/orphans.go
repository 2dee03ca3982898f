package snapshotter

import (
	"bufio"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

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
	verdicts := map[string]bool{namespaceOf(proc, "self"): false, namespaceOf(proc, "1"): false, "": false}
	killed := 0
	var failed []error
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		namespace := namespaceOf(proc, entry.Name())
		reads, known := verdicts[namespace]
		if !known {
			reads = readsFrom(filepath.Join(proc, entry.Name(), "mountinfo"), dead)
			verdicts[namespace] = reads
		}
		if !reads {
			continue
		}
		if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
			failed = append(failed, err)
			continue
		}
		killed++
	}
	return killed, errors.Join(failed...)
}

// namespaceOf is empty for a process that has ended.
func namespaceOf(proc, pid string) string {
	name, err := os.Readlink(filepath.Join(proc, pid, "ns", "mnt"))
	if err != nil {
		return ""
	}
	return name
}

// readsFrom tells whether a namespace has an overlay of one of these folders.
func readsFrom(mountinfo string, dead []string) bool {
	file, err := os.Open(mountinfo)
	if err != nil {
		return false
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		_, options, found := strings.Cut(lines.Text(), "lowerdir=")
		if !found {
			continue
		}
		options, _, _ = strings.Cut(options, ",")
		for lower := range strings.SplitSeq(options, ":") {
			for _, one := range dead {
				if lower == one {
					return true
				}
			}
		}
	}
	return false
}
