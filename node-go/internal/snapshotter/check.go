package snapshotter

import (
	"context"
	"fmt"
	"time"

	snapshotsapi "github.com/containerd/containerd/api/services/snapshots/v1"
	"github.com/containerd/stargz-snapshotter/fusemanager"
	api "github.com/containerd/stargz-snapshotter/fusemanager/api"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

// Check asks both processes whether they do their work: nil, or what is wrong with the first that does not.
func Check(ctx context.Context, s *Settings) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := checkSnapshots(ctx, s.Socket); err != nil {
		return fmt.Errorf("the snapshotter at %s: %w", s.Socket, err)
	}
	if err := checkMounts(ctx, s.MountsSocket); err != nil {
		return fmt.Errorf("the process that serves the mounts at %s: %w", s.MountsSocket, err)
	}
	return nil
}

func checkSnapshots(ctx context.Context, socket string) error {
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	// Any answer is one: there need not be a snapshot of this name, or any.
	_, err = snapshotsapi.NewSnapshotsClient(conn).Stat(ctx, &snapshotsapi.StatSnapshotRequest{Key: "check"})
	if code := status.Code(err); code == codes.Unavailable || code == codes.DeadlineExceeded {
		return err
	}
	return nil
}

func checkMounts(ctx context.Context, socket string) error {
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	answer, err := api.NewStargzFuseManagerServiceClient(conn).Status(ctx, &api.StatusRequest{})
	if err == nil && answer.Status == fusemanager.FuseManagerNotReady {
		return fmt.Errorf("it is not ready")
	}
	return err
}
