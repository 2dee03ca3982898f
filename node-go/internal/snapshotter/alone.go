package snapshotter

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// alone holds the folder of the mounts for this process until it is closed or the process ends: whoever else begins with
// it would take the mounts of the one that serves them for left-overs, and kill what runs from them.
func alone(root string) (*os.File, error) {
	if err := os.MkdirAll(root, 0o700); err != nil {
		return nil, err
	}
	held, err := os.OpenFile(filepath.Join(root, "mounts.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(held.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = held.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("another process serves the mounts in %s, which goes on; stop it first to replace it", root)
		}
		return nil, fmt.Errorf("lock %s: %w", held.Name(), err)
	}
	return held, nil
}
