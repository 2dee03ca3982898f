package builder

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	socket = "/run/buildkit/buildkitd.sock"
	// How long BuildKit may take to begin.
	beginWithin = time.Minute
)

// Client is the command of BuildKit's client, with the address of the daemon.
func Client() []string { return []string{"/usr/bin/buildctl", "--addr", "unix://" + socket} }

// Daemon is BuildKit's.
type Daemon struct {
	process int
	ended   chan error
	relay   net.Listener
}

// Begin starts it, and returns once it answers. It has a network of its own, in which there is nothing but the port of a
// relay: what its steps connect to in there comes from Relay.
func Begin(ctx context.Context, settings Settings) (*Daemon, error) {
	if err := prepare(settings); err != nil {
		return nil, err
	}
	command := exec.CommandContext(ctx, "/usr/bin/buildkitd",
		"--root", filepath.Join(settings.State, "buildkit"),
		"--addr", "unix://"+socket,
		"--oci-worker-snapshotter", "overlayfs",
		// Steps in a process namespace of their own would need a /proc of their own. What they can reach is their owner's.
		"--oci-worker-no-process-sandbox",
		"--oci-worker-binary", "/usr/sbin/runc",
		// The network of a step is that of this process, unless a build asks for none.
		"--oci-worker-net", "host",
		"--oci-worker-gc=false",
	)
	command.Stdout, command.Stderr = os.Stderr, os.Stderr
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	daemon := &Daemon{ended: make(chan error, 1)}
	err := apart(func() (err error) {
		if daemon.relay, err = (&net.ListenConfig{}).Listen(ctx, "tcp", relay); err != nil {
			return err
		}
		if err = command.Start(); err == nil {
			daemon.process = command.Process.Pid
		}
		return err
	}, func() { daemon.ended <- command.Wait() })
	if err != nil {
		return nil, err
	}
	return daemon, daemon.answers(ctx)
}

// Relay takes what steps with a network connect to.
func (d *Daemon) Relay() net.Listener { return d.relay }

// EndOthers ends what the steps of its builds have left, and fails where that does not end.
func (d *Daemon) EndOthers() error { return endOthers(d.process) }

// Ended receives its end.
func (d *Daemon) Ended() <-chan error { return d.ended }

func (d *Daemon) answers(ctx context.Context) error {
	deadline := time.After(beginWithin)
	for {
		if made, err := net.Dial("unix", socket); err == nil {
			return made.Close()
		}
		select {
		case err := <-d.ended:
			return fmt.Errorf("buildkitd has ended: %w", err)
		case <-deadline:
			return errors.New("buildkitd does not answer")
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// apart runs begin in a new network namespace, and then, once that has succeeded, the rest: behind the caller's back, in the
// same thread, since a process that is killed with its parent is so with the thread that has started it.
func apart(begin func() error, rest func()) error {
	begun := make(chan error, 1)
	go func() {
		// For good: the thread is of no use elsewhere, and ends with this.
		runtime.LockOSThread()
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err != nil {
			err = fmt.Errorf("a network namespace for steps: %w", err)
		} else {
			err = begin()
		}
		if begun <- err; err == nil {
			rest()
		}
	}()
	return <-begun
}

// prepare makes folders, in memory where that is wanted.
func prepare(settings Settings) error {
	if settings.InMemory {
		if err := os.MkdirAll(settings.State, 0o700); err != nil {
			return err
		}
		if err := unix.Mount("state", settings.State, "tmpfs", 0, fmt.Sprintf("size=%d,mode=700", settings.MostBytes)); err != nil {
			return fmt.Errorf("mounting %s: %w", settings.State, err)
		}
	}
	for _, folder := range []string{filepath.Join(settings.State, "rollbox"), filepath.Dir(socket)} {
		if err := os.MkdirAll(folder, 0o700); err != nil {
			return err
		}
	}
	return nil
}

func full(err error) bool { return errors.Is(err, unix.ENOSPC) }
