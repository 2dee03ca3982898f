package containerd

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

// No server has it: one that works says so.
const noMethod = "/rollbox.Check/Check"

// Answers says why the process behind a Unix socket answers no gRPC call; nil: it does. That a connection is there proves
// nothing, since the kernel takes it for a process that hangs. Nor does a call to a snapshotter through containerd, which
// knows by itself which snapshots it has.
func Answers(ctx context.Context, socket string) error {
	connection, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("%s: %w", socket, err)
	}
	defer connection.Close()
	err = connection.Invoke(ctx, noMethod, &emptypb.Empty{}, &emptypb.Empty{})
	if code := status.Code(err); code == codes.Unavailable || code == codes.DeadlineExceeded || code == codes.Canceled {
		return fmt.Errorf("%s: %s", socket, status.Convert(err).Message())
	}
	return nil
}
