package kernel

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// process is held by a descriptor: whatever happens, a signal reaches this one and none that has got its number since.
type process struct {
	pid        uint32
	descriptor int
}

// hold returns the process that has a number now; nil: there is none.
func hold(pid uint32) (*process, error) {
	descriptor, err := unix.PidfdOpen(int(pid), 0)
	if errors.Is(err, unix.ESRCH) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("pidfd_open: %w", err)
	}
	return &process{pid, descriptor}, nil
}

func (p *process) close() { _ = unix.Close(p.descriptor) }

// commandLine returns the words of its command. Read after the process is held: if it has ended and its number is
// another's now, these are another's words, which the caller does not take for its own.
func (p *process) commandLine() ([]string, error) {
	text, err := os.ReadFile("/proc/" + strconv.FormatUint(uint64(p.pid), 10) + "/cmdline")
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return strings.Split(string(bytes.TrimSuffix(text, []byte{0})), "\x00"), nil
}

// kill ends it with SIGKILL and returns when it has ended.
func (p *process) kill(ctx context.Context, within time.Duration) error {
	err := unix.PidfdSendSignal(p.descriptor, unix.SIGKILL, nil, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("pidfd_send_signal: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	return p.ended(ctx)
}

// ended returns when the process has ended: then its descriptor is readable.
func (p *process) ended(ctx context.Context) error {
	const look = 100 * time.Millisecond
	for {
		ready, err := unix.Poll([]unix.PollFd{{Fd: int32(p.descriptor), Events: unix.POLLIN}}, int(look.Milliseconds()))
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("poll: %w", err)
		}
		if ready > 0 {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("it has not ended after SIGKILL: %w", ctx.Err())
		}
	}
}
