// Package played is a containerd that plays what a test tells it: a real one cannot be made to answer in a given order.
// The tests on the cluster speak to a real one.
package played

import (
	"context"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	containers "github.com/containerd/containerd/api/services/containers/v1"
	content "github.com/containerd/containerd/api/services/content/v1"
	events "github.com/containerd/containerd/api/services/events/v1"
	images "github.com/containerd/containerd/api/services/images/v1"
	snapshots "github.com/containerd/containerd/api/services/snapshots/v1"
	tasks "github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/api/types"
	"github.com/containerd/containerd/api/types/task"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Config is what containerd says of its settings: runsc has a snapshotter of its own, kata has none.
const Config = `{"containerd":{"runtimes":{"runsc":{"snapshotter":"stargz"},"kata":{"snapshotter":""}}}}`

// Containerd is one. Its fields are set before it is asked; those under Mutex may change.
type Containerd struct {
	cri.UnimplementedImageServiceServer
	cri.UnimplementedRuntimeServiceServer
	events.UnimplementedEventsServer

	Mutex      sync.Mutex
	Images     []*cri.Image
	Infos      map[string]string
	Containers []*cri.Container
	Remote     []string
	Hangs      bool // the snapshotter of remote layers
	Blobs      map[string][]byte
	Arriving   map[string]int64
	Events     chan *types.Envelope
	Pulling    func(ctx context.Context, request *cri.PullImageRequest) error
	Pulled     []*cri.PullImageRequest
	Removed    []string
	Handlers   []string
	Tasks      []*task.Process
	Pods       []*cri.PodSandbox
	Looking    func(pod string) *cri.PodSandboxStatusResponse
	Records    map[string]*images.Image
	Made       map[string]*containers.Container
	Told       map[string]string // of a container, what is said in detail
	Used       map[string]uint64 // of a pod, nanoseconds of processors
}

// Start serves it on a socket until the test ends, and returns the socket's path.
func (c *Containerd) Start(t *testing.T) string {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "containerd.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	cri.RegisterImageServiceServer(server, c)
	cri.RegisterRuntimeServiceServer(server, c)
	content.RegisterContentServer(server, &blobs{played: c})
	snapshots.RegisterSnapshotsServer(server, &remote{played: c})
	events.RegisterEventsServer(server, c)
	images.RegisterImagesServer(server, &records{played: c})
	containers.RegisterContainersServer(server, &made{played: c})
	tasks.RegisterTasksServer(server, &running{played: c})
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	t.Cleanup(func() { server.Stop(); serving.Wait() })
	return socket
}

func (c *Containerd) Version(context.Context, *cri.VersionRequest) (*cri.VersionResponse, error) {
	return &cri.VersionResponse{RuntimeName: "containerd", RuntimeVersion: "v2.1.9"}, nil
}

func (c *Containerd) Status(context.Context, *cri.StatusRequest) (*cri.StatusResponse, error) {
	told := &cri.StatusResponse{Info: map[string]string{"config": Config}}
	for _, name := range c.Handlers {
		told.RuntimeHandlers = append(told.RuntimeHandlers, &cri.RuntimeHandler{Name: name})
	}
	return told, nil
}

func (c *Containerd) ImageFsInfo(context.Context, *cri.ImageFsInfoRequest) (*cri.ImageFsInfoResponse, error) {
	at := &cri.FilesystemIdentifier{Mountpoint: "/var/lib/containerd/io.containerd.snapshotter.v1.overlayfs"}
	return &cri.ImageFsInfoResponse{ImageFilesystems: []*cri.FilesystemUsage{{FsId: at}}}, nil
}

func (c *Containerd) ListImages(context.Context, *cri.ListImagesRequest) (*cri.ListImagesResponse, error) {
	c.Mutex.Lock()
	defer c.Mutex.Unlock()
	return &cri.ListImagesResponse{Images: c.Images}, nil
}

func (c *Containerd) ImageStatus(_ context.Context, r *cri.ImageStatusRequest) (*cri.ImageStatusResponse, error) {
	c.Mutex.Lock()
	defer c.Mutex.Unlock()
	name := r.GetImage().GetImage()
	for _, one := range c.Images {
		for _, other := range append([]string{one.GetId()}, one.GetRepoTags()...) {
			if other == name {
				return &cri.ImageStatusResponse{Image: one, Info: map[string]string{"info": c.Infos[one.GetId()]}}, nil
			}
		}
	}
	return &cri.ImageStatusResponse{}, nil
}

func (c *Containerd) ListContainers(context.Context, *cri.ListContainersRequest) (*cri.ListContainersResponse, error) {
	c.Mutex.Lock()
	defer c.Mutex.Unlock()
	return &cri.ListContainersResponse{Containers: c.Containers}, nil
}

// ListPodSandbox knows no filter.
func (c *Containerd) ListPodSandbox(context.Context, *cri.ListPodSandboxRequest) (*cri.ListPodSandboxResponse, error) {
	c.Mutex.Lock()
	defer c.Mutex.Unlock()
	return &cri.ListPodSandboxResponse{Items: c.Pods}, nil
}

func (c *Containerd) PodSandboxStatus(_ context.Context, r *cri.PodSandboxStatusRequest) (*cri.PodSandboxStatusResponse, error) {
	return c.Looking(r.GetPodSandboxId()), nil
}

func (c *Containerd) PodSandboxStats(_ context.Context, r *cri.PodSandboxStatsRequest) (*cri.PodSandboxStatsResponse, error) {
	stats := &cri.LinuxPodSandboxStats{}
	if used, there := c.Used[r.GetPodSandboxId()]; there {
		stats.Cpu = &cri.CpuUsage{UsageCoreNanoSeconds: &cri.UInt64Value{Value: used}}
	}
	return &cri.PodSandboxStatsResponse{Stats: &cri.PodSandboxStats{Linux: stats}}, nil
}

func (c *Containerd) ContainerStatus(_ context.Context, r *cri.ContainerStatusRequest) (*cri.ContainerStatusResponse, error) {
	return &cri.ContainerStatusResponse{Info: map[string]string{"info": c.Told[r.GetContainerId()]}}, nil
}

func (c *Containerd) RemoveImage(_ context.Context, r *cri.RemoveImageRequest) (*cri.RemoveImageResponse, error) {
	c.Mutex.Lock()
	defer c.Mutex.Unlock()
	c.Removed = append(c.Removed, r.GetImage().GetImage())
	return &cri.RemoveImageResponse{}, nil
}

func (c *Containerd) PullImage(ctx context.Context, r *cri.PullImageRequest) (*cri.PullImageResponse, error) {
	c.Mutex.Lock()
	c.Pulled = append(c.Pulled, r)
	c.Mutex.Unlock()
	if c.Pulling != nil {
		if err := c.Pulling(ctx, r); err != nil {
			return nil, err
		}
	}
	return &cri.PullImageResponse{ImageRef: "sha256:" + r.GetImage().GetImage()}, nil
}

// blobs is its content; as remote a service of its own.
type blobs struct {
	content.UnimplementedContentServer
	played *Containerd
}

func (b *blobs) Info(_ context.Context, r *content.InfoRequest) (*content.InfoResponse, error) {
	b.played.Mutex.Lock()
	defer b.played.Mutex.Unlock()
	blob, there := b.played.Blobs[r.GetDigest()]
	if !there {
		return nil, status.Error(codes.NotFound, r.GetDigest())
	}
	return &content.InfoResponse{Info: &content.Info{Digest: r.GetDigest(), Size: int64(len(blob))}}, nil
}

func (b *blobs) Read(r *content.ReadContentRequest, stream content.Content_ReadServer) error {
	b.played.Mutex.Lock()
	defer b.played.Mutex.Unlock()
	for _, half := range [][]byte{b.played.Blobs[r.GetDigest()][:1], b.played.Blobs[r.GetDigest()][1:]} {
		if err := stream.Send(&content.ReadContentResponse{Data: half}); err != nil {
			return err
		}
	}
	return nil
}

func (b *blobs) ListStatuses(context.Context, *content.ListStatusesRequest) (*content.ListStatusesResponse, error) {
	b.played.Mutex.Lock()
	defer b.played.Mutex.Unlock()
	found := []*content.Status{{Ref: "of-somebody-else", Offset: 5}}
	for digest, offset := range b.played.Arriving {
		found = append(found, &content.Status{Ref: "layer-" + digest, Offset: offset})
	}
	return &content.ListStatusesResponse{Statuses: found}, nil
}

// remote is its snapshots; their service has methods of the same names as that of content.
type remote struct {
	snapshots.UnimplementedSnapshotsServer
	played *Containerd
}

func (r *remote) List(request *snapshots.ListSnapshotsRequest, stream snapshots.Snapshots_ListServer) error {
	r.played.Mutex.Lock()
	hangs := r.played.Hangs
	r.played.Mutex.Unlock()
	if hangs {
		<-stream.Context().Done()
		return stream.Context().Err()
	}
	r.played.Mutex.Lock()
	defer r.played.Mutex.Unlock()
	for _, name := range r.played.Remote {
		if request.GetSnapshotter() != "stargz" {
			return nil
		}
		if err := stream.Send(&snapshots.ListSnapshotsResponse{Info: []*snapshots.Info{{Name: name}}}); err != nil {
			return err
		}
	}
	return nil
}

// Stat knows the names of snapshotters, as containerd does.
func (r *remote) Stat(_ context.Context, request *snapshots.StatSnapshotRequest) (*snapshots.StatSnapshotResponse, error) {
	if request.GetSnapshotter() != "stargz" {
		return nil, status.Error(codes.InvalidArgument, "snapshotter not loaded")
	}
	return nil, status.Error(codes.NotFound, "no such snapshot")
}

func (c *Containerd) Subscribe(_ *events.SubscribeRequest, stream events.Events_SubscribeServer) error {
	for {
		select {
		case event := <-c.Events:
			if err := stream.Send(event); err != nil {
				return err
			}
		case <-stream.Context().Done():
			return nil
		}
	}
}

func (m *made) List(context.Context, *containers.ListContainersRequest) (*containers.ListContainersResponse, error) {
	m.played.Mutex.Lock()
	defer m.played.Mutex.Unlock()
	return &containers.ListContainersResponse{Containers: slices.Collect(maps.Values(m.played.Made))}, nil
}

// running is what runs of its containers.
type running struct {
	tasks.UnimplementedTasksServer
	played *Containerd
}

func (r *running) List(context.Context, *tasks.ListTasksRequest) (*tasks.ListTasksResponse, error) {
	r.played.Mutex.Lock()
	defer r.played.Mutex.Unlock()
	return &tasks.ListTasksResponse{Tasks: r.played.Tasks}, nil
}
