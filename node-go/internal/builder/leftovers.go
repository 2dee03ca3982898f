package builder

import (
	"errors"
	"os"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// How often what a step has left is looked for, and how long after the last time: it may start others while it is ended.
	mostRounds, roundTakes = 40, 25 * time.Millisecond
	// For how many of these what BuildKit itself runs behind a build may end by itself.
	patientRounds = 8
)

// endOthers ends every process of the pod but this program and the one with the id `kept`, so that what the steps of a build
// have left runs in no later build. It does so only as the first process of a process namespace, as in the pod.
func endOthers(kept int) error {
	if os.Getpid() != 1 {
		return nil
	}
	for round := range mostRounds {
		left, err := others("/proc", os.Getpid(), kept)
		if err != nil || len(left) == 0 {
			return err
		}
		for _, one := range left {
			if round >= patientRounds {
				// It may have ended meanwhile.
				_ = unix.Kill(one, unix.SIGKILL)
			}
			// An orphan is this process's to wait for.
			_, _ = unix.Wait4(one, nil, unix.WNOHANG, nil)
		}
		time.Sleep(roundTakes)
	}
	return errors.New("what the steps of a build have left does not end")
}

// others returns the processes that a file system of them has, without some.
func others(proc string, without ...int) ([]int, error) {
	entries, err := os.ReadDir(proc)
	if err != nil {
		return nil, err
	}
	var found []int
	for _, entry := range entries {
		if id, err := strconv.Atoi(entry.Name()); err == nil && !slices.Contains(without, id) {
			found = append(found, id)
		}
	}
	return found, nil
}
