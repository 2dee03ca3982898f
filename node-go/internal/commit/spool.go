package commit

import (
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"rollbox.dev/node/internal/problem"
)

const (
	// What commits leave free on the file system of the spool.
	keepFree = 1 << 30
	// A file takes its room in pieces, so that two that grow share what there is.
	piece = 8 << 20
)

// Spool is where layers wait on the node until the registry has them. Its files have no names: whatever becomes of the
// process, nothing is left of them.
type Spool struct {
	folder string
	most   int64

	mu      sync.Mutex
	taken   int64 // by all files
	written int64
}

// NewSpool returns a spool in a folder, of at most so many bytes.
func NewSpool(folder string, most int64) *Spool { return &Spool{folder: folder, most: most} }

// take reserves bytes, or says why there is no room.
func (s *Spool) take(bytes int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if left := s.most - s.taken; bytes > left {
		return problem.New(problem.CapacityUnavailable, "the node keeps %d bytes for images that are being made (nodeAgent.commitSpoolGibibytes), of which %d are left, and %d are needed", s.most, left, bytes).With("setting", "nodeAgent.commitSpoolGibibytes")
	}
	var disk unix.Statfs_t
	if err := unix.Statfs(s.folder, &disk); err != nil {
		return problem.New(problem.Internal, "the folder for images that are being made: %w", err)
	}
	// What is reserved and not written yet is still free there.
	free := int64(disk.Bavail)*disk.Bsize - keepFree - (s.taken - s.written)
	if bytes > free {
		return problem.New(problem.CapacityUnavailable, "the node has no room for an image that is being made: %d bytes are needed, and %d are left beside the %d that stay free", bytes, max(0, free), int64(keepFree))
	}
	s.taken += bytes
	return nil
}

// spooled is one file of the spool.
type spooled struct {
	of           *Spool
	file         *os.File
	taken, wrote int64
}

func (s *Spool) open() (*spooled, error) {
	file, err := os.CreateTemp(s.folder, "layer-")
	if err != nil {
		return nil, problem.New(problem.Internal, "the folder for images that are being made: %w", err)
	}
	if err := os.Remove(file.Name()); err != nil {
		_ = file.Close()
		return nil, err
	}
	return &spooled{of: s, file: file}, nil
}

// reserve refuses what would not fit, before any of it is read.
func (f *spooled) reserve(total int64) error {
	more := total - f.taken
	if more <= 0 {
		return nil
	}
	if err := f.of.take(more); err != nil {
		return err
	}
	f.taken += more
	return nil
}

func (f *spooled) Write(data []byte) (int, error) {
	if need := f.wrote + int64(len(data)); need > f.taken {
		if err := f.reserve(max(need, f.taken+piece)); err != nil {
			return 0, err
		}
	}
	n, err := f.file.Write(data)
	f.wrote += int64(n)
	f.of.mu.Lock()
	f.of.written += int64(n)
	f.of.mu.Unlock()
	return n, err
}

// all reads what was written, from the beginning.
func (f *spooled) all() *io.SectionReader { return io.NewSectionReader(f.file, 0, f.wrote) }

// close frees its room; closing again does nothing.
func (f *spooled) close() {
	if f.file == nil {
		return
	}
	_ = f.file.Close()
	f.file = nil
	f.of.mu.Lock()
	defer f.of.mu.Unlock()
	f.of.taken -= f.taken
	f.of.written -= f.wrote
}
