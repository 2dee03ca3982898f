package install

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"time"

	"golang.org/x/sys/unix"

	"rollbox.dev/node/internal/containerd"
	"rollbox.dev/node/internal/install/apply"
	"rollbox.dev/node/internal/install/keeper"
	"rollbox.dev/node/internal/install/node"
	"rollbox.dev/node/internal/install/plan"
)

const (
	endsIn = 30 * time.Second
	// A plan that has failed means that containerd was started anew twice: it is not tried again all the time.
	triesAgainAfter = time.Hour
)

type installer struct {
	settings *Settings
	node     *node.Node
	applier  *apply.Applier
	log      *slog.Logger
}

// Run does the work and writes what people asked for to out.
//
// Errors: *plan.Refusal; *apply.FailedError; others: nothing was changed.
func Run(ctx context.Context, settings *Settings, work Work, out io.Writer, log *slog.Logger) (err error) {
	runtime, err := containerd.Open(settings.Containerd)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, runtime.Close()) }()
	made := newInstaller(settings, runtime, log)
	if !work.Stay {
		return made.once(ctx, work, out)
	}
	for ctx.Err() == nil {
		if err := made.once(ctx, work, out); err != nil && ctx.Err() == nil {
			log.Warn("not done", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(settings.Every):
		}
	}
	return nil
}

func newInstaller(settings *Settings, runtime *containerd.Runtime, log *slog.Logger) *installer {
	sockets := map[string]string{plan.Containerd: settings.Containerd}
	sockets[plan.ServeUnit], sockets[plan.MountsUnit] = (&plan.Lazy{Run: settings.Sockets}).Sockets()
	var kept keeper.Keeper = &keeper.Processes{EndsIn: endsIn, StartsIn: settings.Starts}
	if settings.Keeper == plan.Systemd {
		kept = &keeper.Systemd{Bus: settings.Bus, Units: map[string]string{plan.Containerd: settings.Unit}, StartsIn: settings.Starts}
	}
	here := &node.Node{Runtime: runtime, Keeper: kept, Kept: settings.Keeper, Sockets: sockets, Main: settings.Config, Wanted: &settings.Wanted}
	return &installer{settings, here, &apply.Applier{
		Store: &apply.Store{Folder: filepath.Join(settings.Wanted.Folder, "state")}, Keeper: kept, Payload: settings.Payload,
		Sockets: sockets, Live: here.Live, Verify: here.Verify, Log: log,
	}, log}
}

func (i *installer) once(ctx context.Context, work Work, out io.Writer) error {
	if work.DryRun {
		steps, err := i.plan(ctx, work)
		if err != nil && len(steps) == 0 {
			return err
		}
		return errors.Join(err, show(out, steps, work.JSON))
	}
	free, err := lock(filepath.Dir(i.settings.Config))
	if err != nil {
		return err
	}
	defer free()
	if _, err := i.applier.Recover(ctx); err != nil {
		return fmt.Errorf("an install that was not finished cannot be undone yet: %w", err)
	}
	steps, err := i.plan(ctx, work)
	if refused := (*plan.Refusal)(nil); errors.As(err, &refused) {
		return errors.Join(err, i.tell(&apply.Status{State: apply.Refused, Code: refused.Code, Detail: refused.Detail}))
	}
	if err != nil {
		return err
	}
	if work.Stay && i.hasFailed(steps) {
		return fmt.Errorf("the same plan %s has failed before: it waits for an hour, for a change, or for `%s/bin/rollbox-node install` by hand with these settings", steps.Digest(), i.settings.Wanted.Folder)
	}
	return i.do(ctx, work, steps, out)
}

func (i *installer) do(ctx context.Context, work Work, steps plan.Plan, out io.Writer) error {
	if len(steps) > 0 || !work.Stay {
		if err := show(out, steps, work.JSON); err != nil {
			return err
		}
	}
	if len(steps) > 0 {
		if err := i.quiet(ctx, work); err != nil {
			return err
		}
		if err := i.applier.Apply(ctx, steps); err != nil {
			failed := &apply.Status{State: apply.Failed, Detail: err.Error()}
			if ctx.Err() == nil {
				// One that was told to end has not failed by itself.
				failed.Plan, failed.FailedAt = steps.Digest(), time.Now().UTC()
			}
			return errors.Join(err, i.tell(failed))
		}
	}
	if work.Uninstall {
		return i.applier.Store.Forget()
	}
	return i.tell(&apply.Status{State: apply.Installed})
}

// quiet keeps sandboxes from a node that is about to be changed: its agent says so, the operator sets the taint, and what
// has begun to start until then is seen. One that is run by hand does not wait.
func (i *installer) quiet(ctx context.Context, work Work) error {
	before, err := i.applier.Store.Status()
	if err != nil {
		return err
	}
	if err := i.tell(&apply.Status{State: apply.Installing}); err != nil {
		return err
	}
	if work.Stay && before != nil && len(before.Versions) > 0 {
		select {
		case <-ctx.Done():
		case <-time.After(i.settings.Quiet):
		}
	}
	live, err := i.node.Live(ctx)
	if err == nil {
		err = plan.CheckLive(live)
	}
	if refused := (*plan.Refusal)(nil); errors.As(err, &refused) {
		return errors.Join(err, i.tell(&apply.Status{State: apply.Refused, Code: refused.Code, Detail: refused.Detail}))
	}
	return err
}

func (i *installer) plan(ctx context.Context, work Work) (plan.Plan, error) {
	record, err := i.applier.Store.Record()
	if err != nil {
		return nil, err
	}
	facts, err := i.node.Facts(ctx, record)
	if err != nil {
		return nil, err
	}
	if work.Uninstall {
		return plan.Undo(facts)
	}
	return plan.Make(facts, &i.settings.Wanted)
}

func (i *installer) hasFailed(steps plan.Plan) bool {
	before, err := i.applier.Store.Status()
	if err != nil || before == nil || len(steps) == 0 {
		return false
	}
	return before.Plan == steps.Digest() && time.Since(before.FailedAt) < triesAgainAfter
}

// tell writes a status that says something new. Of anything but an install what the node has is what it had.
func (i *installer) tell(status *apply.Status) error {
	before, err := i.applier.Store.Status()
	if err != nil {
		return err
	}
	if status.State == apply.Installed {
		status.Versions, status.Lazy = apply.VersionsOf(i.settings.Wanted.Payload), i.settings.Wanted.Lazy != nil
	} else if before != nil {
		status.Versions, status.Lazy = before.Versions, before.Lazy
		if status.Plan == "" {
			status.Plan, status.FailedAt = before.Plan, before.FailedAt
		}
	}
	if before != nil {
		status.At = before.At
		if reflect.DeepEqual(before, status) {
			return nil
		}
	}
	status.At = time.Now().UTC()
	return i.applier.Store.Tell(status)
}

func show(out io.Writer, steps plan.Plan, asJSON bool) (err error) {
	if !asJSON {
		_, err = io.WriteString(out, steps.Table())
		return err
	}
	written := json.NewEncoder(out)
	written.SetIndent("", "  ")
	return written.Encode(map[string]any{"plan": steps.Digest(), "steps": append(plan.Plan{}, steps...)})
}

// lock keeps out other installers of this node, in whatever pod.
func lock(folder string) (free func(), err error) {
	held, err := os.Open(folder)
	if err != nil {
		return nil, fmt.Errorf("the folder of containerd's settings: %w", err)
	}
	if err := unix.Flock(int(held.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = held.Close()
		return nil, fmt.Errorf("another installer is at work on this node (%s is locked): %w", folder, err)
	}
	return func() { _ = held.Close() }, nil
}
