package install

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"rollbox.dev/node/internal/install/apply"
	"rollbox.dev/node/internal/install/plan"
)

// shown is what people and programs see before anything is done. Left is a run that has not ended: the next one undoes it
// first, so that its plan may be another.
type shown struct {
	Plan plan.Plan
	Left *apply.Left
	// Limits are settings of the kernel that are raised before, beside the plan.
	Limits plan.Plan
}

// foresee says what would be done.
func (i *installer) foresee(ctx context.Context, work Work, out io.Writer) error {
	left, err := i.applier.Store.Left()
	if err != nil {
		return err
	}
	steps, err := i.plan(ctx, work)
	if err != nil && len(steps) == 0 && left == nil {
		return err
	}
	return errors.Join(err, show(out, shown{steps, left, i.lowLimits(work)}, work.JSON))
}

func show(out io.Writer, all shown, asJSON bool) (err error) {
	if !asJSON {
		_, err = io.WriteString(out, all.text())
		return err
	}
	told := map[string]any{"plan": all.Plan.Digest(), "steps": append(plan.Plan{}, all.Plan...)}
	if len(all.Limits) > 0 {
		told["limits"] = all.Limits
	}
	if all.Left != nil {
		told["unfinished"] = all.Left
	}
	written := json.NewEncoder(out)
	written.SetIndent("", "  ")
	return written.Encode(told)
}

func (s shown) text() string {
	now := append(append(plan.Plan{}, s.Limits...), s.Plan...)
	if s.Left == nil {
		return now.Table()
	}
	changed := strings.Join(append(s.Left.Files, s.Left.Services...), ", ")
	return fmt.Sprintf("A run was stopped before its end. The next one undoes it first (%s), and makes its plan then; as the node is now:\n\n%s",
		changed, now.Table())
}
