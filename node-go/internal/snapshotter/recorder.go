package snapshotter

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/containerd/log"
	"github.com/moby/sys/mountinfo"
	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"rollbox.dev/node/internal/record"
	"rollbox.dev/node/internal/wire"
)

const (
	// Each has a queue of events in the kernel.
	recordingsAtOnce = 4
	mostRecorded     = time.Hour
)

var containerID = regexp.MustCompile(`^[0-9a-f]{64}$`)

// recorder tells which files of its image a container opens. It is here since it takes root's right to look at a whole file
// system, which the agent has not.
type recorder struct {
	wire.UnimplementedRecorderServer
	root   string
	places *semaphore.Weighted
}

func newRecorder(root string) *recorder {
	return &recorder{root: root, places: semaphore.NewWeighted(recordingsAtOnce)}
}

// Record answers once when it has begun, and again when the caller sends no more.
func (r *recorder) Record(stream grpc.BidiStreamingServer[wire.ContainerRecordRequest, wire.Recording]) error {
	asked, err := stream.Recv()
	if err != nil {
		return err
	}
	at, err := rootOf(asked.GetContainerId(), r.root)
	if err != nil {
		return err
	}
	if !r.places.TryAcquire(1) {
		return status.Errorf(codes.ResourceExhausted, "%d containers are recorded already", recordingsAtOnce)
	}
	defer r.places.Release(1)
	recording, err := record.Start(at)
	if err != nil {
		return status.Errorf(codes.Unimplemented, "this node does not tell which files are opened: %v", err)
	}
	over := r.wait(stream)
	opened, err := stopped(recording)
	if err != nil {
		return err
	}
	if over != nil {
		return over
	}
	log.G(stream.Context()).WithField("container", asked.GetContainerId()).WithField("files", len(opened.Paths)).Info("recorded")
	return stream.Send(&wire.Recording{Is: &wire.Recording_Opened_{Opened: opened}})
}

// wait returns when the caller sends no more, or why that is waited for no longer.
func (r *recorder) wait(stream grpc.BidiStreamingServer[wire.ContainerRecordRequest, wire.Recording]) error {
	if err := stream.Send(&wire.Recording{Is: &wire.Recording_Begun_{Begun: &wire.Recording_Begun{}}}); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { _, err := stream.Recv(); ended <- err }()
	select {
	case err := <-ended:
		if stream.Context().Err() != nil {
			return stream.Context().Err()
		}
		if err == nil {
			return status.Error(codes.InvalidArgument, "one message says what is recorded")
		}
		return nil
	case <-time.After(mostRecorded):
		return status.Errorf(codes.DeadlineExceeded, "a recording takes at most %v", mostRecorded)
	}
}

func stopped(recording *record.Recording) (*wire.Recording_Opened, error) {
	paths, more, err := recording.Stop()
	if err != nil {
		return nil, status.Errorf(codes.Internal, "what was opened: %v", err)
	}
	return &wire.Recording_Opened{Paths: paths, More: more}, nil
}

// rootOf returns where containerd has mounted the root file system of a container of Kubernetes, whose layers are this
// snapshotter's.
func rootOf(container, snapshots string) (string, error) {
	if !containerID.MatchString(container) {
		return "", status.Errorf(codes.InvalidArgument, "%.100q is no container's id", container)
	}
	end := fmt.Sprintf("/k8s.io/%s/rootfs", container)
	found, err := mountinfo.GetMounts(func(one *mountinfo.Info) (skip, stop bool) {
		return one.FSType != "overlay" || !strings.HasSuffix(one.Mountpoint, end) || !isOf(one.VFSOptions, snapshots), false
	})
	if err != nil {
		return "", status.Errorf(codes.Internal, "the mounts of this node: %v", err)
	}
	if len(found) == 0 {
		return "", status.Errorf(codes.NotFound, "no container %s runs from a file system of this snapshotter", container)
	}
	return found[0].Mountpoint, nil
}

// isOf tells whether an overlay is of the snapshots in a folder, by the folder of what is changed in it.
func isOf(options, snapshots string) bool {
	for option := range strings.SplitSeq(options, ",") {
		if upper, is := strings.CutPrefix(option, "upperdir="); is {
			return strings.HasPrefix(upper, filepath.Clean(snapshots)+"/")
		}
	}
	return false
}
