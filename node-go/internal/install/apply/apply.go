package apply

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"rollbox.dev/node/internal/files"
	"rollbox.dev/node/internal/install/plan"
	"rollbox.dev/node/internal/install/supervisor"
)

// undoesIn is how long an undo may take: it goes on when the installer is told to end.
const undoesIn = 3 * time.Minute

// Applier does what plans say.
type Applier struct {
	Store      *Store
	Supervisor supervisor.Supervisor
	// Payload is the folder of the programs.
	Payload string
	// Sockets are those of the services, by name.
	Sockets map[string]string
	// Live returns what runs in gVisor: looked at again before every service that is changed.
	Live func(ctx context.Context) ([]string, error)
	// Verify returns what is wrong after a plan was done; nil: nothing.
	Verify func(ctx context.Context, target string) error
	Log    *slog.Logger
}

// FailedError is a plan that could not be finished.
type FailedError struct {
	// Step is the one that failed.
	Step plan.Step
	// Undone tells whether the node is as it was before.
	Undone bool
	cause  error
}

func (e *FailedError) Error() string {
	end := "the node is as it was before"
	if !e.Undone {
		end = "NOT everything could be undone; the next run tries again"
	}
	return fmt.Sprintf("%s %s failed, %s: %v", e.Step.Do, e.Step.Target, end, e.cause)
}

func (e *FailedError) Unwrap() error { return e.cause }

// Recover undoes a run that was not finished, within undoesIn; false: there is none.
func (a *Applier) Recover(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, undoesIn)
	defer cancel()
	found, err := a.Store.open()
	if err != nil || found == nil {
		return false, err
	}
	if err := a.none(ctx); err != nil {
		return true, err
	}
	a.Log.Warn("an install was not finished: it is undone", "services", found.Services)
	return true, a.undo(ctx, found)
}

// Apply does all steps, or none.
//
// Errors: *FailedError, once anything may have changed.
func (a *Applier) Apply(ctx context.Context, steps plan.Plan) error {
	begun, err := a.Store.begin(steps)
	if err != nil {
		return errors.Join(fmt.Errorf("nothing was changed: %w", err), os.RemoveAll(a.Store.undoFolder()))
	}
	for _, step := range steps {
		a.Log.Info("step", "do", step.Do, "target", step.Target, "why", step.Why)
		if err := a.do(ctx, begun, step); err != nil {
			return a.fail(ctx, begun, step, err)
		}
	}
	now, err := a.note(begun, steps)
	if err != nil {
		return a.fail(ctx, begun, steps[len(steps)-1], err)
	}
	if err := begun.end(); err != nil || !now.empty() {
		return err
	}
	return a.Store.clear(now.Folders)
}

func (a *Applier) fail(ctx context.Context, begun *journal, step plan.Step, cause error) error {
	a.Log.Error("step failed: everything is undone", "do", step.Do, "target", step.Target, "error", cause)
	// Half of an install is worse than a late end.
	undoing, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoesIn)
	defer cancel()
	err := a.undo(undoing, begun)
	return &FailedError{Step: step, Undone: err == nil, cause: errors.Join(cause, err)}
}

func (a *Applier) do(ctx context.Context, begun *journal, step plan.Step) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	switch step.Do {
	case plan.Write:
		if err := begun.unchanged(step.Target); err != nil {
			return err
		}
		return a.write(step)
	case plan.Restore:
		return files.Copy(a.Store.original(step.Target), step.Target, plan.File{Mode: step.Mode, Digest: step.Digest})
	case plan.Remove:
		return files.Remove(step.Target)
	case plan.Forget:
		return nil
	case plan.Verify:
		return a.Verify(ctx, step.Target)
	}
	if err := a.none(ctx); err != nil {
		return err
	}
	if err := begun.touch(step.Target); err != nil {
		return err
	}
	service := a.service(step.Target)
	switch step.Do {
	case plan.Withdraw:
		return a.Supervisor.Withdraw(ctx, service)
	case plan.Provide:
		return a.Supervisor.Provide(ctx, service)
	default:
		return a.Supervisor.Restart(ctx, service)
	}
}

// none is a refusal where anything runs in gVisor.
func (a *Applier) none(ctx context.Context) error {
	live, err := a.Live(ctx)
	if err != nil {
		return err
	}
	return plan.CheckLive(live)
}

func (a *Applier) write(step plan.Step) error {
	if step.Program == "" {
		return files.Write(step.Target, step.Mode, step.Digest, bytes.NewReader(step.Text))
	}
	about := plan.File{Mode: step.Mode, Digest: step.Digest}
	return files.Copy(filepath.Join(a.Payload, step.Program), step.Target, about)
}

func (a *Applier) service(name string) supervisor.Service {
	return supervisor.Service{Name: name, Socket: a.Sockets[name]}
}
