// Package limits knows the settings of a node's kernel that bound how many sandboxes it holds.
package limits

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// limit is one setting: what each sandbox takes of it, and what the rest of the node does.
type limit struct {
	name         string
	each, others uint64
	// to is what it is raised to at least, and no less than twice what is needed; 0: it is somebody else's to set.
	to uint64
}

// Measured of idle sandboxes (docs/scale.md, "A full node"): 84 threads, 323 open files, 25 inotify watches, 6 mounts and 6
// tracked connections each. Threads and files are taken twice, since commands have some too. Of what kube-proxy and network
// plugins set by themselves it is only told that it is low.
var table = []limit{
	{name: "kernel.pid_max", each: 168, others: 4096, to: 4194304},
	{name: "kernel.threads-max", each: 168, others: 4096, to: 65536},
	{name: "fs.file-max", each: 646, others: 65536, to: 1048576},
	{name: "fs.mount-max", each: 6, others: 10000, to: 100000},
	{name: "fs.inotify.max_user_instances", each: 0, others: 128, to: 512},
	{name: "fs.inotify.max_user_watches", each: 25, others: 8192, to: 65536},
	{name: "net.netfilter.nf_conntrack_max", each: 6, others: 16384},
}

// Low is a setting that is lower than so many sandboxes need.
type Low struct {
	Name   string `json:"name"`
	Is     uint64 `json:"is"`
	Needed uint64 `json:"needed"`
	// To is what it is to be; 0: it is somebody else's to set.
	To uint64 `json:"to,omitempty"`
}

// String says it in a sentence that stays the same as long as the setting does.
func (l Low) String() string {
	return fmt.Sprintf("%s is %d, and %d is needed", l.Name, l.Is, l.Needed)
}

// Look tells the settings that are lower than so many sandboxes need, by the files below root, as /proc/sys has them. A
// setting that this kernel does not have is none.
func Look(root string, sandboxes int) (low []Low, err error) {
	for _, one := range table {
		is, known := read(root, one.name)
		if known != nil {
			if !errors.Is(known, fs.ErrNotExist) {
				err = errors.Join(err, fmt.Errorf("%s: %w", one.name, known))
			}
			continue
		}
		if needed := one.each*uint64(max(0, sandboxes)) + one.others; is < needed {
			found := Low{Name: one.name, Is: is, Needed: needed}
			if one.to > 0 {
				found.To = max(one.to, 2*needed)
			}
			low = append(low, found)
		}
	}
	return low, err
}

func file(root, name string) string { return filepath.Join(root, strings.ReplaceAll(name, ".", "/")) }

func read(root, name string) (uint64, error) {
	text, err := os.ReadFile(file(root, name))
	if err != nil {
		return 0, err
	}
	is, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	if errors.Is(err, strconv.ErrRange) {
		return math.MaxUint64, nil
	}
	return is, err
}

// write sets a setting in place, as the kernel wants it, and reads it again: kernels cut values in silence.
func write(root, name string, value uint64) error {
	opened, err := os.OpenFile(file(root, name), os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = opened.WriteString(strconv.FormatUint(value, 10) + "\n")
	if err = errors.Join(err, opened.Close()); err != nil {
		return err
	}
	if is, err := read(root, name); err != nil || is != value {
		return errors.Join(err, fmt.Errorf("%s is %d after %d was written", name, is, value))
	}
	return nil
}
