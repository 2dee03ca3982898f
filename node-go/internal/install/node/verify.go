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

// RetryAfter for a containerd that was started anew, for a process of the snapshotter, and for a command in gVisor on a node
// that does much else.
const (
	answersIn = 60 * time.Second
	servesIn  = 20 * time.Second
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
	if err := n.snapshotter(ctx); err != nil {
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

// snapshotter asks containerd whether it knows one of that name, and each of its processes by itself: containerd knows
// without them which snapshots there are.
func (n *Node) snapshotter(ctx context.Context) error {
	if n.Wanted.Lazy == nil {
		return nil
	}
	asking, cancel := context.WithTimeout(ctx, servesIn)
	defer cancel()
	_, err := n.Runtime.Snapshots.Stat(asking, &snapshots.StatSnapshotRequest{Snapshotter: n.Wanted.Lazy.Snapshotter, Key: "check"})
	if err != nil && status.Code(err) != codes.NotFound {
		return fmt.Errorf("the snapshotter %s: %w", n.Wanted.Lazy.Snapshotter, err)
	}
	for _, service := range n.Wanted.Services() {
		if err := serves(ctx, n.Sockets[service]); err != nil {
			return fmt.Errorf("%s runs, and answers no call within %s: %w", service, servesIn, err)
		}
	}
	return nil
}

func serves(ctx context.Context, socket string) error {
	ctx, cancel := context.WithTimeout(ctx, servesIn)
	defer cancel()
	return containerd.Answers(ctx, socket)
}
