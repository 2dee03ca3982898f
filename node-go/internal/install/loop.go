package install

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"rollbox.dev/node/internal/install/plan"
	"rollbox.dev/node/internal/installed"
)

const (
	// A plan that has failed means that containerd was started anew twice: it is tried again less and less often.
	triesAgainAtLast = time.Hour
	// How often it is looked whether somebody has asked for another try.
	heedsEvery = time.Second
)

// backoff is how long a plan waits that has failed so often in a row.
func backoff(first time.Duration, failures int) time.Duration {
	for wait := first; ; wait *= 2 {
		if failures--; failures <= 0 || wait >= triesAgainAtLast {
			return min(wait, triesAgainAtLast)
		}
	}
}

// stay does it again and again, until the context ends.
func (i *installer) stay(ctx context.Context, work Work, out io.Writer) {
	for ctx.Err() == nil {
		err := i.once(ctx, work, out)
		if err != nil && ctx.Err() == nil {
			i.log.Warn("not done", "error", err)
		}
		i.pause(ctx, err)
	}
}

// pause returns when it is time for the next look: after a while; when a plan that has failed is to be tried again; when
// somebody asks; or when the last pod in gVisor has ended, where that was waited for.
func (i *installer) pause(ctx context.Context, after error) {
	ctx, cancel := context.WithTimeout(ctx, i.next(after))
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	if refused := (*plan.Refusal)(nil); errors.As(after, &refused) && refused.Code == plan.LiveSandboxes {
		watching.Go(func() {
			if i.node.Drained(ctx) == nil {
				cancel()
			}
		})
	}
	look := time.NewTicker(heedsEvery)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
			if i.applier.Store.Asked() {
				return
			}
		}
	}
}

// next is how long the next look is away at most.
func (i *installer) next(after error) time.Duration {
	wait := i.settings.Every
	var failed *planError
	var waits *waitsError
	switch {
	case errors.As(after, &failed):
		wait = min(wait, backoff(i.settings.Retry, failed.failures))
	case errors.As(after, &waits):
		wait = min(wait, time.Until(waits.until))
	}
	return wait
}

// heldBack is the time until which a plan waits that has failed.
func (i *installer) heldBack(steps plan.Plan) time.Time {
	before, err := installed.Read(i.applier.Store.Folder)
	if err != nil || before == nil || len(steps) == 0 || before.Plan != steps.Digest() {
		return time.Time{}
	}
	return before.FailedAt.Add(backoff(i.settings.Retry, before.Failures))
}

// failures is how often in a row a plan has failed so far.
func (i *installer) failures(digest string) int {
	before, err := installed.Read(i.applier.Store.Folder)
	if err != nil || before == nil || before.Plan != digest {
		return 0
	}
	return before.Failures
}
