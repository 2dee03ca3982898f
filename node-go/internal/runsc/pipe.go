package runsc

import (
	"os"

	"golang.org/x/sys/unix"
)

const (
	// What a pipe has unless it is told otherwise.
	pipeBytes = 64 << 10
	// As much as a process without privileges may have: fewer turns between kernel and agent.
	largePipeBytes = 1 << 20
)

// pipe returns the end that a kernel writes to, which blocks it, and the one that is read here, for which deadlines hold.
// It is for so many bytes.
func pipe(size int64) (kernels, ours *os.File, err error) {
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, os.NewSyscallError("pipe2", err)
	}
	if size > pipeBytes {
		// Without it a pipe works too.
		_, _ = unix.FcntlInt(uintptr(ends[1]), unix.F_SETPIPE_SZ, largePipeBytes)
	}
	kernels = os.NewFile(uintptr(ends[1]), "pipe")
	if err := unix.SetNonblock(ends[0], true); err != nil {
		_ = unix.Close(ends[0])
		_ = kernels.Close()
		return nil, nil, os.NewSyscallError("fcntl", err)
	}
	return kernels, os.NewFile(uintptr(ends[0]), "pipe"), nil
}
