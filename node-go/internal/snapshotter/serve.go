package snapshotter

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	snapshotsapi "github.com/containerd/containerd/api/services/snapshots/v1"
	"github.com/containerd/containerd/v2/contrib/snapshotservice"
	"github.com/containerd/log"
	"github.com/containerd/stargz-snapshotter/snapshot"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"rollbox.dev/node/internal/telemetry"
	"rollbox.dev/node/internal/wire"
)

// grace is how long calls under way may go on when a process is told to stop.
const grace = 10 * time.Second

// Serve answers containerd until the context ends. What it has mounted stays mounted then.
func Serve(ctx context.Context, s *Settings) error {
	if err := s.logTo(); err != nil {
		return err
	}
	counts := newCounts()
	files, err := dialMounts(s, counts)
	if err != nil {
		return err
	}
	// Nothing is mounted again here (NoRestore): Check does that for what is used.
	shots, err := snapshot.NewSnapshotter(ctx, filepath.Join(s.Root, "snapshotter"), files,
		snapshot.AsynchronousRemove, snapshot.NoRestore)
	if err != nil {
		return fmt.Errorf("the snapshots in %s: %w", s.Root, err)
	}
	server := grpc.NewServer()
	snapshotsapi.RegisterSnapshotsServer(server, snapshotservice.FromSnapshotter(shots))
	wire.RegisterRecorderServer(server, newRecorder(s.Root))
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return telemetry.Serve(ctx, s.Metrics, counts.registry) })
	group.Go(func() error { return serveSocket(ctx, server, s.Socket) })
	log.G(ctx).WithField("socket", s.Socket).WithField("trusted", s.Trusted).Info("serving snapshots")
	return group.Wait()
}

// serveSocket serves on a Unix socket of root's until the context ends, and lets calls under way finish.
func serveSocket(ctx context.Context, server *grpc.Server, socket string) error {
	if err := os.MkdirAll(filepath.Dir(socket), 0o700); err != nil {
		return err
	}
	if err := removeDead(ctx, socket); err != nil {
		return err
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	if err := os.Chmod(socket, 0o600); err != nil {
		return err
	}
	context.AfterFunc(ctx, func() {
		forced := time.AfterFunc(grace, server.Stop)
		server.GracefulStop()
		forced.Stop()
	})
	return server.Serve(listener)
}

// removeDead removes a socket that nobody listens on: a second process must not take it from a living one.
func removeDead(ctx context.Context, socket string) error {
	dialer := net.Dialer{Timeout: time.Second}
	if conn, err := dialer.DialContext(ctx, "unix", socket); err == nil {
		_ = conn.Close()
		return fmt.Errorf("another process serves %s", socket)
	}
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
