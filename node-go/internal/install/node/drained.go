package node

import (
	"context"
	"time"

	events "github.com/containerd/containerd/api/services/events/v1"
)

// Many tasks end together: they are looked at once.
const gathers = time.Second

// Drained returns once nothing runs in gVisor any more: it looks whenever a task has ended. An error: containerd does not
// tell, or the context has ended.
func (n *Node) Drained(ctx context.Context) error {
	stream, err := n.Runtime.Events.Subscribe(ctx, &events.SubscribeRequest{
		Filters: []string{`topic=="/tasks/exit"`, `topic=="/tasks/delete"`},
	})
	if err != nil {
		return err
	}
	for {
		live, err := n.Live(ctx)
		if err != nil || len(live) == 0 {
			return err
		}
		if _, err := stream.Recv(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(gathers):
		}
	}
}
