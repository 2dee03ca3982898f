package record

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Whoever opens a file has the file system mounted at a place of its own, no deeper than this.
const deepest = 24

type identity struct{ device, number uint64 }

// root is a file system.
type root struct {
	folder *os.File
	// How many parts of a path were the place where the file system is mounted, the last time.
	above int
}

func openRoot(path string) (*root, error) {
	descriptor, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	return &root{folder: os.NewFile(uintptr(descriptor), path)}, nil
}

func (r *root) close() error { return r.folder.Close() }

// find returns the path of a file from the root. The kernel tells one from the root of the mount namespace of whoever has
// opened the file; which part of it is where the file system is mounted, is told by the file that is there.
func (r *root) find(told string, file identity) (string, bool) {
	parts := strings.Split(strings.TrimPrefix(told, "/"), "/")
	if path, found := r.without(parts, r.above, file); found {
		return path, true
	}
	for above := range min(deepest, len(parts)) {
		if path, found := r.without(parts, above, file); found {
			r.above = above
			return path, true
		}
	}
	return "", false
}

func (r *root) without(parts []string, above int, file identity) (string, bool) {
	if above >= len(parts) {
		return "", false
	}
	path := strings.Join(parts[above:], "/")
	// The folders are an image's: none of their links is followed, and nothing is opened (O_PATH).
	how := &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV,
	}
	descriptor, err := unix.Openat2(int(r.folder.Fd()), path, how)
	if err != nil {
		return "", false
	}
	defer unix.Close(descriptor)
	var about unix.Stat_t
	if unix.Fstat(descriptor, &about) != nil || (identity{about.Dev, about.Ino}) != file {
		return "", false
	}
	return "/" + path, true
}
