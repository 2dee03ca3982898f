package node

import (
	"context"
	"fmt"
	"slices"
	"time"

	snapshots "github.com/containerd/containerd/api/services/snapshots/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"rollbox.dev/node/internal/containerd"
	"rollbox.dev/node/internal/install/plan"
)

// Patience for a containerd that was started anew, and for a command in gVisor on a node that does much else.
const (
	answersIn = 60 * time.Second
	runsIn    = 60 * time.Second
	look      = 200 * time.Millisecond
)

// Verify returns what is wrong: containerd answers; and, of an install, it offers the runtimes, a command runs in
// gVisor, and the snapshotter does its work.
func (n *Node) Verify(ctx context.Context, target string) error {
	answering, cancel := context.WithTimeout(ctx, answersIn)
	defer cancel()
	var wanted []string
	if target != plan.Containerd {
		wanted = n.Wanted.Handlers()
	}
	if err := n.offers(answering, wanted); err != nil || target == plan.Containerd {
		return err
	}
	if err := n.snapshotter(answering); err != nil {
		return err
	}
	running, cancel := context.WithTimeout(ctx, runsIn)
	defer cancel()
	return n.runs(running)
}

// offers waits: containerd answers some time before it has read all of its plugins.
func (n *Node) offers(ctx context.Context, wanted []string) error {
	for {
		found, err := n.offered(ctx)
		missing := slices.DeleteFunc(slices.Clone(wanted), func(one string) bool { return slices.Contains(found, one) })
		if err == nil && len(missing) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			if err != nil {
				return fmt.Errorf("containerd does not answer: %w", err)
			}
			return fmt.Errorf("containerd offers the runtimes %v and not %v", found, missing)
		case <-time.After(look):
		}
	}
}

// snapshotter asks through containerd, and asks the other process by itself.
func (n *Node) snapshotter(ctx context.Context) error {
	if n.Wanted.Lazy == nil {
		return nil
	}
	_, err := n.Runtime.Snapshots.Stat(ctx, &snapshots.StatSnapshotRequest{Snapshotter: n.Wanted.Lazy.Snapshotter, Key: "check"})
	if err != nil && status.Code(err) != codes.NotFound {
		return fmt.Errorf("the snapshotter %s: %w", n.Wanted.Lazy.Snapshotter, err)
	}
	for _, service := range n.Wanted.Services() {
		if _, err := containerd.Listener(ctx, n.Sockets[service]); err != nil {
			return fmt.Errorf("%s: %w", service, err)
		}
	}
	return nil
}
