// Package usage reads what a sandbox takes of its node, from the control groups that its process is in.
//
// gVisor's shim starts `runsc events --stats` for it, a program of 80 MB that asks the sandbox: 35 ms of a processor for
// each container, which the kubelet asks for every 10 s. A few files say the same.
package usage

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Usage is what a control group has used.
type Usage struct {
	CPUNanoseconds uint64
	MemoryBytes    uint64 // without the file pages that the kernel would take back first
	Tasks          uint64 // processes and threads, as the node counts them
}

// Share is an equal part of it.
func (u Usage) Share(parts uint64) Usage {
	return Usage{u.CPUNanoseconds / parts, u.MemoryBytes / parts, u.Tasks / parts}
}

// Of reads it for a process of the node; an error where the groups are not at the usual places.
func Of(pid int) (Usage, error) { return of("/proc", "/sys/fs/cgroup", pid) }

func of(proc, root string, pid int) (Usage, error) {
	places, err := groups(filepath.Join(proc, strconv.Itoa(pid), "cgroup"), root)
	if err != nil {
		return Usage{}, err
	}
	if _, err := os.Stat(filepath.Join(root, "cgroup.controllers")); err == nil {
		return unified(places[""])
	}
	return legacy(places)
}

// groups returns the folder of each controller; of version 2, which has one for all, that of "".
func groups(path, root string) (map[string]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	places := map[string]string{}
	for line := range strings.Lines(string(text)) {
		_, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		controllers, place, _ := strings.Cut(rest, ":")
		for controller := range strings.SplitSeq(controllers, ",") {
			places[controller] = filepath.Join(root, controllers, place)
		}
	}
	return places, nil
}

func unified(folder string) (Usage, error) {
	micros, wrong1 := field(filepath.Join(folder, "cpu.stat"), "usage_usec")
	memory, wrong2 := memory(folder, "memory.current", "inactive_file")
	tasks, wrong3 := number(filepath.Join(folder, "pids.current"))
	return Usage{micros * 1000, memory, tasks}, errors.Join(wrong1, wrong2, wrong3)
}

func legacy(places map[string]string) (Usage, error) {
	nanos, wrong1 := number(filepath.Join(places["cpuacct"], "cpuacct.usage"))
	memory, wrong2 := memory(places["memory"], "memory.usage_in_bytes", "total_inactive_file")
	tasks, wrong3 := number(filepath.Join(places["pids"], "pids.current"))
	return Usage{nanos, memory, tasks}, errors.Join(wrong1, wrong2, wrong3)
}

func memory(folder, usage, inactive string) (uint64, error) {
	all, wrong := number(filepath.Join(folder, usage))
	spare, also := field(filepath.Join(folder, "memory.stat"), inactive)
	return all - min(all, spare), errors.Join(wrong, also)
}

func number(path string) (uint64, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
}

func field(path, name string) (uint64, error) {
	file, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if value, found := strings.CutPrefix(lines.Text(), name+" "); found {
			return strconv.ParseUint(value, 10, 64)
		}
	}
	return 0, fmt.Errorf("%s: no %s", path, name)
}
