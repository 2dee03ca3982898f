package apply

import (
	"errors"
	"os"

	"rollbox.dev/node/internal/files"
	"rollbox.dev/node/internal/install/plan"
)

// note keeps what the first installs have found, and writes the record: from then on the run is the node's past.
func (a *Applier) note(begun *journal, steps plan.Plan) (*recorded, error) {
	now, err := a.Store.recorded()
	if err != nil {
		return nil, err
	}
	for _, step := range steps {
		if err := a.noteStep(now, begun, step); err != nil {
			return nil, err
		}
	}
	for _, folder := range begun.Folders {
		now.Folders = with(now.Folders, folder)
	}
	sortDeepest(now.Folders)
	if now.empty() {
		return now, files.Remove(a.Store.recordFile())
	}
	return now, files.Put(a.Store.recordFile(), now)
}

func (r *recorded) empty() bool { return len(r.Files)+len(r.Services) == 0 }

// clear removes what is left of a store whose record is gone.
func (s *Store) clear(folders []string) error {
	err := errors.Join(os.RemoveAll(s.originals()), files.Remove(s.statusFile()))
	leave(folders)
	return err
}

func (a *Applier) noteStep(now *recorded, begun *journal, step plan.Step) error {
	switch step.Do {
	case plan.Write:
		return a.noteWritten(now, begun, step)
	case plan.Restore, plan.Remove, plan.Forget:
		delete(now.Files, step.Target)
	case plan.Provide:
		now.Services = with(now.Services, step.Target)
	case plan.Withdraw:
		now.Services = without(now.Services, step.Target)
	}
	return nil
}

// noteWritten keeps what was there before the first install; of a shared file, before the last change that was ours.
func (a *Applier) noteWritten(now *recorded, begun *journal, step plan.Step) error {
	if step.Undoes {
		delete(now.Files, step.Target)
		return nil
	}
	before := begun.before(step.Target)
	owned, ours := now.Files[step.Target]
	if !ours || step.Shared && (before.Before == nil || before.Before.Digest != owned.Written) {
		owned = plan.Owned{Original: before.Before}
		if before.Before != nil {
			if err := files.Copy(before.Backup, a.Store.original(step.Target), *before.Before); err != nil {
				return err
			}
		}
	}
	owned.Written = step.Digest
	now.Files[step.Target] = owned
	return nil
}
