// Package process holds processes of the node, so that a signal reaches the one that was looked at.
package process

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

// Process is held by a descriptor: whatever happens, a signal reaches this one and none that has got its number since.
type Process struct {
	pid        uint32
	descriptor int
}

// Hold returns the process that has a number now; nil: there is none. What is read of it in /proc is read after that: if
// it has ended and its number is another's by then, the other is not what a signal reaches.
func Hold(pid uint32) (*Process, error) {
	descriptor, err := unix.PidfdOpen(int(pid), 0)
	if errors.Is(err, unix.ESRCH) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("pidfd_open: %w", err)
	}
	return &Process{pid, descriptor}, nil
}

// Close lets it go.
func (p *Process) Close() { _ = unix.Close(p.descriptor) }

// CommandLine returns the words of its command; none if it has ended.
func (p *Process) CommandLine() ([]string, error) {
	text, err := os.ReadFile("/proc/" + strconv.FormatUint(uint64(p.pid), 10) + "/cmdline")
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) || err == nil && len(text) == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return strings.Split(string(bytes.TrimSuffix(text, []byte{0})), "\x00"), nil
}

// Kill sends SIGKILL; success if it has ended already.
func (p *Process) Kill() error { return p.Signal(unix.SIGKILL) }

// Signal sends a signal; success if it has ended already.
func (p *Process) Signal(number unix.Signal) error {
	if err := unix.PidfdSendSignal(p.descriptor, number, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("pidfd_send_signal: %w", err)
	}
	return nil
}

// Ended returns when the process has ended: then its descriptor is readable.
func (p *Process) Ended(ctx context.Context) error {
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
			return fmt.Errorf("it has not ended: %w", ctx.Err())
		}
	}
}
