package supervisor

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"rollbox.dev/node/internal/containerd"
	"rollbox.dev/node/internal/process"
)

// Processes are services that somebody else starts, and starts again when they end: a supervisor, or a script. This
// supervisor ends them and waits for the next one. Each is the process that listens on its socket.
type Processes struct {
	// EndsIn is how long one may take to end, StartsIn until it answers again.
	EndsIn, StartsIn time.Duration
}

const look = 100 * time.Millisecond

// Restart ends the process with SIGTERM.
func (p *Processes) Restart(ctx context.Context, service Service) error {
	if err := p.end(ctx, service); err != nil {
		return err
	}
	return p.wait(ctx, service)
}

// Provide ends the process, if there is one, and waits for its next start.
func (p *Processes) Provide(ctx context.Context, service Service) error {
	return p.Restart(ctx, service)
}

// Withdraw only ends the process: whoever starts it has to be told.
func (p *Processes) Withdraw(ctx context.Context, service Service) error { return p.end(ctx, service) }

// Running tells whether the socket is answered.
func (p *Processes) Running(ctx context.Context, service Service) (bool, error) {
	_, err := containerd.Listener(ctx, service.Socket)
	return err == nil, nil
}

func (p *Processes) end(ctx context.Context, service Service) error {
	pid, err := containerd.Listener(ctx, service.Socket)
	if err != nil {
		// Nobody listens.
		return nil
	}
	if pid == 0 {
		return fmt.Errorf("%s runs in another pid namespace: set hostPID: true for the installer's pod", service.Name)
	}
	held, err := process.Hold(uint32(pid))
	if err != nil || held == nil {
		return err
	}
	defer held.Close()
	// The pid may belong to another process by now; the process that listens now is held.
	if again, err := containerd.Listener(ctx, service.Socket); err != nil || again != pid {
		return nil
	}
	if err := held.Signal(unix.SIGTERM); err != nil {
		return err
	}
	ending, cancel := context.WithTimeout(ctx, p.EndsIn)
	defer cancel()
	if err := held.Ended(ending); err != nil {
		return fmt.Errorf("%s does not end: %w", service.Name, err)
	}
	return nil
}

func (p *Processes) wait(ctx context.Context, service Service) error {
	starting, cancel := context.WithTimeout(ctx, p.StartsIn)
	defer cancel()
	for {
		if _, err := containerd.Listener(starting, service.Socket); err == nil {
			return nil
		}
		select {
		case <-starting.Done():
			return fmt.Errorf("%s was not started again within %v: nobody listens on %s", service.Name, p.StartsIn, service.Socket)
		case <-time.After(look):
		}
	}
}
