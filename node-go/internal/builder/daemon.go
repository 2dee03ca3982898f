package builder

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
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
	command *exec.Cmd
	ended   chan error
}

// Begin starts it, and returns once it answers.
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
		"--oci-worker-gc=false",
	)
	command.Stdout, command.Stderr = os.Stderr, os.Stderr
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := command.Start(); err != nil {
		return nil, err
	}
	daemon := &Daemon{command, make(chan error, 1)}
	go func() { daemon.ended <- command.Wait() }()
	return daemon, daemon.answers(ctx)
}

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
