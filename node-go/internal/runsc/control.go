// Package runsc asks gVisor kernels of this node over their control sockets, as the runsc program does: to let all
// processes of a sandbox stand still, to list what it has changed in its file system, and to read files.
//
// It asks by itself, and not through that program: `runsc tar rootfs-upper` has the kernel take each file whole into the
// sandbox's own memory, so that a file of half the sandbox's limit ends the sandbox; `runsc pause` leaves it standing
// still when its caller dies, and nothing that says so. A kernel may be in the hands of what runs in it: its answers are
// bounded, and it is never waited for without a limit.
package runsc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// An answer is a few words, or those of an error.
const maxAnswerBytes = 64 << 10

// RefusedError is what a kernel answers instead of doing what it was asked.
type RefusedError struct{ Method, Words string }

func (e *RefusedError) Error() string { return fmt.Sprintf("%s: %.500s", e.Method, e.Words) }

// ErrUnknown is of a gVisor that does not know a call.
var ErrUnknown = errors.New("this version of gVisor does not know the call")

// connection takes one call at a time; a kernel serves the calls of one connection in their order.
type connection struct{ socket *net.UnixConn }

func dial(ctx context.Context, socket string) (*connection, error) {
	opened, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, fmt.Errorf("the control socket: %w", err)
	}
	return &connection{opened.(*net.UnixConn)}, nil
}

func (c *connection) close() { _ = c.socket.Close() }

// call asks for one thing. After an error other than a RefusedError the connection is of no more use.
func (c *connection) call(ctx context.Context, method string, argument any, files ...*os.File) error {
	cut := context.AfterFunc(ctx, func() { _ = c.socket.SetDeadline(time.Unix(1, 0)) })
	defer cut()
	err := c.ask(method, argument, files)
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

func (c *connection) ask(method string, argument any, files []*os.File) error {
	text, err := json.Marshal(map[string]any{"method": method, "arg": argument})
	if err != nil {
		return err
	}
	var rights []byte
	if len(files) > 0 {
		descriptors := make([]int, len(files))
		for at, file := range files {
			descriptors[at] = int(file.Fd())
		}
		rights = unix.UnixRights(descriptors...)
	}
	sent, _, err := c.socket.WriteMsgUnix(text, rights, nil)
	if err == nil && sent < len(text) {
		_, err = c.socket.Write(text[sent:])
	}
	if err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	return c.answer(method)
}

func (c *connection) answer(method string) error {
	var read struct {
		Success bool   `json:"success"`
		Err     string `json:"err"`
	}
	limited := &io.LimitedReader{R: c.socket, N: maxAnswerBytes}
	if err := json.NewDecoder(limited).Decode(&read); err != nil {
		return fmt.Errorf("%s: the kernel did not answer: %w", method, err)
	}
	switch {
	case read.Success:
		return nil
	case read.Err == "unknown method":
		return fmt.Errorf("%s: %w", method, ErrUnknown)
	}
	return &RefusedError{method, read.Err}
}
