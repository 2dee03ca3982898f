package install

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"rollbox.dev/node/internal/install/apply"
	"rollbox.dev/node/internal/install/plan"
	"rollbox.dev/node/internal/installed"
)

// planError is a plan that has failed, by its digest, so often in a row.
type planError struct {
	digest   string
	failures int
	cause    error
}

func (e *planError) Error() string { return e.cause.Error() }
func (e *planError) Unwrap() error { return e.cause }

// waitsError is a plan that has failed before and is not tried yet.
type waitsError struct {
	digest string
	until  time.Time
	again  string
}

func (e *waitsError) Error() string {
	return fmt.Sprintf("the same plan %s has failed before: it is tried again at %s, once it changes, or at once after `%s again`",
		e.digest, e.until.UTC().Format(time.RFC3339), e.again)
}

// tellOf tells how a look has ended that was no success. One that was told to end has not failed by itself.
func (i *installer) tellOf(ctx context.Context, err error) error {
	var refused *plan.Refusal
	var failed *planError
	var waits *waitsError
	status := &installed.Status{State: installed.Failed, Detail: err.Error()}
	switch {
	case errors.As(err, &waits), ctx.Err() != nil && !errors.As(err, &failed):
		return nil
	case errors.As(err, &refused) && !halfDone(err):
		// Also of a plan that was undone, since a sandbox has started meanwhile: it is not the plan that has failed.
		status.State, status.Code, status.Detail = installed.Refused, refused.Code, refused.Detail
	case errors.As(err, &failed) && ctx.Err() == nil:
		status.Plan, status.Failures, status.FailedAt = failed.digest, failed.failures, time.Now().UTC()
	}
	return i.tell(status)
}

func halfDone(err error) bool {
	var failed *apply.FailedError
	return errors.As(err, &failed) && !failed.Undone
}

// tell writes a status that says something new. Of anything but an install what the node has is what it had.
func (i *installer) tell(status *installed.Status) error {
	before, err := installed.Read(i.applier.Store.Folder)
	if err != nil {
		return err
	}
	if status.State == installed.Done {
		status.Versions, status.Lazy = apply.VersionsOf(i.settings.Wanted.Payload), i.settings.Wanted.Lazy != nil
	} else if before != nil {
		status.Versions, status.Lazy = before.Versions, before.Lazy
		if status.Plan == "" {
			status.Plan, status.Failures, status.FailedAt = before.Plan, before.Failures, before.FailedAt
		}
	}
	if before != nil {
		status.At = before.At
		if reflect.DeepEqual(before, status) {
			return nil
		}
	}
	status.At = time.Now().UTC()
	return installed.Tell(i.applier.Store.Folder, status)
}
