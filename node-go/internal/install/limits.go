package install

import (
	"fmt"
	"path/filepath"

	"rollbox.dev/node/internal/install/plan"
	"rollbox.dev/node/internal/limits"
)

const raise plan.Verb = "raise"

func (i *installer) limitsRecord() string {
	return filepath.Join(i.applier.Store.Folder, "limits.json")
}

// raiseLimits raises the kernel's settings. They are no part of the plan: they end nothing, so they are changed beside
// sandboxes that run, and a node that lets them not be changed has gVisor installed all the same.
func (i *installer) raiseLimits() {
	if i.settings.Limits == "" {
		return
	}
	done, err := limits.Raise(i.settings.Limits, i.settings.Sandboxes, i.limitsRecord())
	for _, one := range done {
		i.log.Info("a setting of the kernel is raised", "setting", one.Name, "from", one.Is, "to", one.To)
	}
	if err != nil {
		i.log.Warn("a setting of the kernel is too low and could not be raised", "error", err)
	}
}

// giveLimitsBack gives back what was raised, once no sandbox runs here.
func (i *installer) giveLimitsBack(work Work) error {
	if i.settings.Limits == "" || !work.Uninstall {
		return nil
	}
	given, err := limits.Restore(i.settings.Limits, i.limitsRecord())
	if len(given) > 0 {
		i.log.Info("the kernel's settings are what they were", "settings", given)
	}
	return err
}

// lowLimits are the steps that raiseLimits would take, for people.
func (i *installer) lowLimits(work Work) (steps plan.Plan) {
	if i.settings.Limits == "" || work.Uninstall {
		return nil
	}
	low, err := limits.Look(i.settings.Limits, i.settings.Sandboxes)
	if err != nil {
		i.log.Warn("a setting of the kernel cannot be read", "error", err)
	}
	for _, one := range low {
		if one.To > 0 {
			why := fmt.Sprintf("it is %d, and %d sandboxes need %d: to %d", one.Is, i.settings.Sandboxes, one.Needed, one.To)
			steps = append(steps, plan.Step{Do: raise, Target: one.Name, Why: why})
		}
	}
	return steps
}
