package commit

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"rollbox.dev/node/internal/runsc"
)

const (
	lookedAtOnce = 16
	// Of one kernel; one that hangs is the operator's.
	looksWithin = 10 * time.Second
	// containerd may start after the agent.
	asksEvery = 2 * time.Second
)

// LetGo lets all sandboxes of the node go on that an agent has left standing still, and then lets commits begin. It
// returns when that is done, or the context ends.
func (c *Commits) LetGo(ctx context.Context) {
	defer close(c.first)
	for {
		found, err := c.pods.Running(ctx)
		if err == nil {
			c.letGo(ctx, found)
			return
		}
		c.log.Warn("whether sandboxes stand still is not known yet", "error", err)
		select {
		case <-time.After(asksEvery):
		case <-ctx.Done():
			return
		}
	}
}

func (c *Commits) letGo(ctx context.Context, found []*cri.PodSandbox) {
	var group errgroup.Group
	group.SetLimit(lookedAtOnce)
	for _, pod := range found {
		group.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, looksWithin)
			defer cancel()
			went, err := c.kernels.Of(pod.GetId()).LetGo(ctx)
			switch {
			case err != nil && !runsc.Gone(err):
				c.log.Warn("a kernel does not tell whether it stands still, asked again", "sandbox_id", pod.GetMetadata().GetName(), "error", err)
			case went:
				c.log.Warn("a sandbox stood still, it goes on", "sandbox_id", pod.GetMetadata().GetName())
			}
			return nil
		})
	}
	_ = group.Wait()
}
