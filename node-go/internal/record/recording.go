// Package record tells which files of its image a container opens.
//
// It looks at the container's root file system (fanotify), so it sees what is fetched, whoever opens it: gVisor opens a
// file of the node for whatever its programs do with one, a stat included. What it hears of is an attacker's choice, so all
// of it is bounded.
package record

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

const (
	// What a conversion takes.
	mostPaths = 20_000
	mostBytes = 1 << 20
	mostPath  = 4096
	// Files that are open and found under no name, such as deleted ones: each is looked for at many places.
	mostMisses = mostPaths
	// Events that are read at once: each has a file open.
	readAtOnce = 64
	eventBytes = 24
)

// Recording is one container's.
type Recording struct {
	events *os.File
	root   *root
	done   chan error
	seen   map[identity]bool
	paths  []string
	bytes  int
	misses int
	// Nothing more is kept, nor looked for.
	full bool
	more bool
}

// Start begins to look at the file system that is mounted at a path; Stop follows. What gVisor has open of it already is a
// part of what was opened. Needs CAP_SYS_ADMIN.
func Start(path string) (*Recording, error) {
	at, err := openRoot(path)
	if err != nil {
		return nil, err
	}
	flags := uint(unix.FAN_CLASS_NOTIF | unix.FAN_CLOEXEC | unix.FAN_NONBLOCK)
	descriptor, err := unix.FanotifyInit(flags, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOATIME|unix.O_LARGEFILE)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("fanotify_init: %w", err), at.close())
	}
	r := &Recording{
		events: os.NewFile(uintptr(descriptor), "fanotify"), root: at, done: make(chan error, 1), seen: map[identity]bool{},
	}
	if err := unix.FanotifyMark(descriptor, unix.FAN_MARK_ADD|unix.FAN_MARK_FILESYSTEM, unix.FAN_OPEN, unix.AT_FDCWD, path); err != nil {
		return nil, errors.Join(fmt.Errorf("fanotify_mark: %w", err), r.events.Close(), at.close())
	}
	for _, one := range openFiles("/proc") {
		_ = r.take(one) // gVisor has the files of other sandboxes open too
	}
	go func() { r.done <- r.read() }()
	return r, nil
}

// Stop ends it, and returns the paths of what was opened, from the root of the file system, in the order of the first
// times; with more, they are not all.
func (r *Recording) Stop() (paths []string, more bool, err error) {
	// Nothing new comes, so what has come has an end.
	err = unix.FanotifyMark(r.descriptor(), unix.FAN_MARK_FLUSH|unix.FAN_MARK_FILESYSTEM, 0, unix.AT_FDCWD, "")
	err = errors.Join(err, r.events.SetReadDeadline(time.Unix(1, 0)))
	err = errors.Join(err, <-r.done)
	return r.paths, r.more, errors.Join(err, r.events.Close(), r.root.close())
}

func (r *Recording) descriptor() (found int) {
	raw, err := r.events.SyscallConn()
	if err == nil {
		err = raw.Control(func(descriptor uintptr) { found = int(descriptor) })
	}
	if err != nil {
		return -1
	}
	return found
}

// read takes events until the deadline is set, and then those that are there.
func (r *Recording) read() error {
	buffer := make([]byte, readAtOnce*eventBytes)
	for {
		size, err := r.events.Read(buffer)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return r.rest(buffer)
		}
		if err != nil {
			return fmt.Errorf("events: %w", err)
		}
		r.all(buffer[:size])
	}
}

func (r *Recording) rest(buffer []byte) error {
	for {
		size, err := unix.Read(r.descriptor(), buffer)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN) || err == nil && size <= 0:
			return nil
		case err != nil:
			return fmt.Errorf("events: %w", err)
		default:
			r.all(buffer[:size])
		}
	}
}

// all takes events as the kernel writes them: length (4 bytes), version, reserved, length of this part, mask (8), descriptor
// (4), process (4).
func (r *Recording) all(events []byte) {
	for len(events) >= eventBytes {
		length := binary.NativeEndian.Uint32(events)
		mask, descriptor := binary.NativeEndian.Uint64(events[8:]), int32(binary.NativeEndian.Uint32(events[16:]))
		if mask&unix.FAN_Q_OVERFLOW != 0 {
			r.more = true
		}
		if descriptor >= 0 {
			if !r.take("/proc/self/fd/" + strconv.Itoa(int(descriptor))) {
				r.missed()
			}
			_ = unix.Close(int(descriptor))
		}
		if length < eventBytes || int(length) > len(events) {
			return
		}
		events = events[length:]
	}
}

// take keeps the path of a file that is open, by the link that the kernel has for it; false: the file was looked for, and
// not found.
func (r *Recording) take(link string) bool {
	var about unix.Stat_t
	if r.full || unix.Stat(link, &about) != nil || about.Mode&unix.S_IFMT != unix.S_IFREG {
		return true
	}
	file := identity{about.Dev, about.Ino}
	if r.seen[file] {
		return true
	}
	told, err := os.Readlink(link)
	if err != nil {
		return true
	}
	path, found := r.root.find(told, file)
	if !found || len(path) > mostPath || !utf8.ValidString(path) {
		return false
	}
	if len(r.paths) >= mostPaths || r.bytes+len(path) > mostBytes {
		r.full, r.more = true, true
		return true
	}
	r.seen[file] = true
	r.paths, r.bytes = append(r.paths, path), r.bytes+len(path)
	return true
}

func (r *Recording) missed() {
	if r.misses++; r.misses >= mostMisses {
		r.full, r.more = true, true
	}
}

// openFiles returns links to what gVisor's processes have open, those of each in the order of its numbers. Whose they are,
// is told by what they are.
func openFiles(proc string) []string {
	var found []string
	entries, err := os.ReadDir(proc)
	if err != nil {
		return nil
	}
	for _, entry := range entries {
		if _, err := strconv.Atoi(entry.Name()); err != nil {
			continue
		}
		command, err := os.ReadFile(proc + "/" + entry.Name() + "/cmdline")
		if err != nil || !strings.HasPrefix(string(command), "runsc-") {
			continue
		}
		folder := proc + "/" + entry.Name() + "/fd"
		descriptors, err := os.ReadDir(folder)
		if err != nil {
			continue
		}
		slices.SortFunc(descriptors, func(a, b os.DirEntry) int {
			if len(a.Name()) != len(b.Name()) {
				return len(a.Name()) - len(b.Name())
			}
			return strings.Compare(a.Name(), b.Name())
		})
		for _, one := range descriptors {
			found = append(found, folder+"/"+one.Name())
		}
	}
	return found
}
