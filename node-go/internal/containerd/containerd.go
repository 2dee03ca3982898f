// Package containerd speaks to the node's containerd over its socket: by the container runtime interface, and by
// containerd's own services where that interface says too little.
package containerd

import (
	"context"
	"fmt"

	containers "github.com/containerd/containerd/api/services/containers/v1"
	content "github.com/containerd/containerd/api/services/content/v1"
	events "github.com/containerd/containerd/api/services/events/v1"
	images "github.com/containerd/containerd/api/services/images/v1"
	snapshots "github.com/containerd/containerd/api/services/snapshots/v1"
	tasks "github.com/containerd/containerd/api/services/tasks/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"rollbox.dev/node/internal/problem"
)

// What Kubernetes' containers and images are in.
const namespace = "k8s.io"

// Lists of a node with thousands of images pass gRPC's own limit.
const maxMessageBytes = 64 << 20

// Runtime has the services of one containerd. All of them are safe for concurrent use. Records are containerd's own of
// names of images.
type Runtime struct {
	Images     cri.ImageServiceClient
	Containers cri.RuntimeServiceClient
	Content    content.ContentClient
	Snapshots  snapshots.SnapshotsClient
	Events     events.EventsClient
	// Of containerd itself: containers, also those without a pod.
	Defined    containers.ContainersClient
	Tasks      tasks.TasksClient
	Records    images.ImagesClient
	connection *grpc.ClientConn
}

// Open makes a client of the containerd that listens on a Unix socket; it connects when it is first used, and again
// whenever containerd was restarted.
func Open(socket string) (*Runtime, error) {
	connection, err := grpc.NewClient("unix://"+socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessageBytes)),
		grpc.WithUnaryInterceptor(inNamespace),
		grpc.WithStreamInterceptor(streamInNamespace))
	if err != nil {
		return nil, fmt.Errorf("containerd at %s: %w", socket, err)
	}
	return &Runtime{
		Images:     cri.NewImageServiceClient(connection),
		Containers: cri.NewRuntimeServiceClient(connection),
		Content:    content.NewContentClient(connection),
		Snapshots:  snapshots.NewSnapshotsClient(connection),
		Events:     events.NewEventsClient(connection),
		Defined:    containers.NewContainersClient(connection),
		Tasks:      tasks.NewTasksClient(connection),
		Records:    images.NewImagesClient(connection),
		connection: connection,
	}, nil
}

// Close ends all calls.
func (r *Runtime) Close() error { return r.connection.Close() }

// Failed is the problem of a call that containerd did not answer as it should; what was asked is named.
func Failed(what string, err error) error {
	words := status.Convert(err).Message()
	if code := status.Code(err); code == codes.Unavailable || code == codes.DeadlineExceeded {
		return problem.New(problem.UpstreamTimeout, "%s: the node's containerd does not answer: %s", what, words)
	}
	return problem.New(problem.Internal, "%s: %s", what, words)
}

func inNamespace(
	ctx context.Context, method string, request, answer any, connection *grpc.ClientConn, call grpc.UnaryInvoker,
	options ...grpc.CallOption,
) error {
	return call(named(ctx), method, request, answer, connection, options...)
}

func streamInNamespace(
	ctx context.Context, about *grpc.StreamDesc, connection *grpc.ClientConn, method string, open grpc.Streamer,
	options ...grpc.CallOption,
) (grpc.ClientStream, error) {
	return open(named(ctx), about, connection, method, options...)
}

const header = "containerd-namespace"

// In is a context in another namespace of containerd than that of Kubernetes: the kubelet does not see what is there.
func In(ctx context.Context, namespace string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, header, namespace)
}

func named(ctx context.Context) context.Context {
	if chosen, _ := metadata.FromOutgoingContext(ctx); len(chosen.Get(header)) > 0 {
		return ctx
	}
	return In(ctx, namespace)
}
