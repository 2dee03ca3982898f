package install

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"rollbox.dev/node/internal/containerd"
	"rollbox.dev/node/internal/install/apply"
	"rollbox.dev/node/internal/install/node"
	"rollbox.dev/node/internal/install/plan"
	"rollbox.dev/node/internal/install/supervisor"
	"rollbox.dev/node/internal/installed"
)

const endsIn = 30 * time.Second

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
	switch {
	case work.Again:
		return made.applier.Store.Ask()
	case work.DryRun:
		return made.foresee(ctx, work, out)
	case work.Stay:
		made.stay(ctx, work, out)
		return nil
	}
	return made.once(ctx, work, out)
}

func newInstaller(settings *Settings, runtime *containerd.Runtime, log *slog.Logger) *installer {
	sockets := map[string]string{plan.Containerd: settings.Containerd}
	sockets[plan.ServeUnit], sockets[plan.MountsUnit] = (&plan.Lazy{Run: settings.Sockets}).Sockets()
	var kept supervisor.Supervisor = &supervisor.Processes{EndsIn: endsIn, StartsIn: settings.Starts}
	if settings.Supervisor == plan.Systemd {
		kept = &supervisor.Systemd{Bus: settings.Bus, Units: map[string]string{plan.Containerd: settings.Unit}, StartsIn: settings.Starts}
	}
	here := &node.Node{Runtime: runtime, Supervisor: kept, Kept: settings.Supervisor, Sockets: sockets, Main: settings.Config, Wanted: &settings.Wanted}
	return &installer{settings, here, &apply.Applier{
		Store: &apply.Store{Folder: filepath.Join(settings.Wanted.Folder, "state")}, Supervisor: kept, Payload: settings.Payload,
		Sockets: sockets, Live: here.Live, Verify: here.Verify, Log: log,
	}, log}
}

// once looks, does what is to be done, and tells how that has ended.
func (i *installer) once(ctx context.Context, work Work, out io.Writer) error {
	free, err := lock(filepath.Dir(i.settings.Config))
	if err != nil {
		// The one that holds it tells.
		return err
	}
	defer free()
	if err := i.change(ctx, work, out); err != nil {
		return errors.Join(err, i.tellOf(ctx, err))
	}
	return nil
}

func (i *installer) change(ctx context.Context, work Work, out io.Writer) error {
	asked, err := i.applier.Store.Heed()
	if err != nil {
		return err
	}
	if asked {
		i.log.Info("somebody has asked for another try")
	}
	if _, err := i.applier.Recover(ctx); err != nil {
		return fmt.Errorf("an install that was not finished cannot be undone yet: %w", err)
	}
	if !work.Uninstall {
		i.raiseLimits()
	}
	steps, err := i.plan(ctx, work)
	if err != nil {
		return err
	}
	if until := i.heldBack(steps); work.Stay && time.Now().Before(until) {
		return &waitsError{steps.Digest(), until, filepath.Join(i.settings.Payload, plan.Checker)}
	}
	return i.do(ctx, work, steps, out)
}

func (i *installer) do(ctx context.Context, work Work, steps plan.Plan, out io.Writer) error {
	if len(steps) > 0 || !work.Stay {
		if err := show(out, shown{Plan: steps}, work.JSON); err != nil {
			return err
		}
	}
	if len(steps) > 0 {
		// Asked now: the undo of a first install leaves no status.
		failures := i.failures(steps.Digest())
		if err := i.quiet(ctx, work); err != nil {
			return err
		}
		// Before the folder of its record goes.
		if err := i.giveLimitsBack(work); err != nil {
			return err
		}
		if err := i.applier.Apply(ctx, steps); err != nil {
			return &planError{steps.Digest(), failures + 1, err}
		}
	}
	if work.Uninstall {
		return errors.Join(i.giveLimitsBack(work), i.applier.Store.Forget())
	}
	return i.tell(&installed.Status{State: installed.Done})
}

// quiet keeps sandboxes from a node that is about to be changed: its agent says so, the operator sets the taint, and what
// has begun to start until then is seen. One that is run by hand does not wait.
func (i *installer) quiet(ctx context.Context, work Work) error {
	before, err := installed.Read(i.applier.Store.Folder)
	if err != nil {
		return err
	}
	if err := i.tell(&installed.Status{State: installed.AtWork}); err != nil {
		return err
	}
	if work.Stay && before != nil && len(before.Versions) > 0 {
		select {
		case <-ctx.Done():
		case <-time.After(i.settings.Quiet):
		}
	}
	live, err := i.node.Live(ctx)
	if err != nil {
		return err
	}
	return plan.CheckLive(live)
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
