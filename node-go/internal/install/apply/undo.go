package apply

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"rollbox.dev/node/internal/files"
	"rollbox.dev/node/internal/install/plan"
)

// undo leaves the node as it was before a run. Its journal goes last, so that an undo that was stopped is begun again.
func (a *Applier) undo(ctx context.Context, begun *journal) error {
	var failed []error
	for _, service := range begun.Services {
		// Before its unit goes.
		if service != plan.Containerd && !slices.Contains(begun.Had, service) {
			failed = append(failed, a.Supervisor.Withdraw(ctx, a.service(service)))
		}
	}
	failed = append(failed, begun.restore())
	for _, service := range begun.Services {
		if service != plan.Containerd && slices.Contains(begun.Had, service) {
			failed = append(failed, a.Supervisor.Provide(ctx, a.service(service)))
		}
	}
	if slices.Contains(begun.Services, plan.Containerd) {
		failed = append(failed, a.Supervisor.Restart(ctx, a.service(plan.Containerd)))
	}
	if err := errors.Join(failed...); err != nil {
		return err
	}
	if err := begun.end(); err != nil {
		return err
	}
	now, err := a.Store.recorded()
	if err != nil {
		return err
	}
	if now.empty() {
		return a.Store.clear(begun.Folders)
	}
	leave(begun.Folders)
	return nil
}

// before is what a file was when the run began.
func (j *journal) before(path string) entry {
	for _, one := range j.Entries {
		if one.Path == path {
			return one
		}
	}
	return entry{Path: path}
}

func with(list []string, one string) []string {
	if slices.Contains(list, one) {
		return list
	}
	return append(list, one)
}

func without(list []string, one string) []string {
	return slices.DeleteFunc(list, func(other string) bool { return other == one })
}

func sortDeepest(folders []string) {
	slices.SortFunc(folders, func(a, b string) int { return len(b) - len(a) })
}

// unchanged is an error where somebody has changed a file since the plan was made.
func (j *journal) unchanged(path string) error {
	is, err := files.Look(path)
	if err != nil {
		return err
	}
	before := j.before(path).Before
	if (is == nil) != (before == nil) || is != nil && *is != *before {
		return fmt.Errorf("%s was changed meanwhile by somebody else", path)
	}
	return nil
}
