package agent

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	snapshots "github.com/containerd/containerd/api/services/snapshots/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"rollbox.dev/node/internal/containerd"
	"rollbox.dev/node/internal/installed"
	"rollbox.dev/node/internal/limits"
	"rollbox.dev/node/internal/wire"
)

// A process that works answers within milliseconds.
const snapshotterAnswersIn = 3 * time.Second

// health looks whether sandboxes can start here. What an installer was refused is no trouble where an earlier version
// works.
func (s *service) health(ctx context.Context) *wire.Health {
	told := &wire.Health{}
	s.installed(told)
	troubles, lazy := s.handlerTroubles(ctx)
	told.Troubles = append(told.Troubles, troubles...)
	// Apart: sandboxes whose image is fetched whole start all the same.
	told.LazyTrouble = strings.Join(lazy, "; ")
	told.Broken = s.whatIsBroken(ctx)
	told.Low = s.lowLimits()
	if s.isFull() {
		told.Troubles = append(told.Troubles, "the file system of images is full")
	}
	return told
}

// lowLimits are settings of the node's kernel that bound how many sandboxes it holds. They keep none from starting now.
func (s *service) lowLimits() (told []string) {
	low, err := limits.Look("/proc/sys", s.settings.Sandboxes)
	if err != nil {
		s.log.Warn("a setting of the kernel cannot be read", "error", err)
	}
	for _, one := range low {
		told = append(told, fmt.Sprintf("%s for %d sandboxes", one, s.settings.Sandboxes))
	}
	return told
}

func (s *service) isFull() bool {
	free, size := room(s.settings.Images)
	return free != nil && isFull(*free, *size)
}

// isFull: the next image may not fit. It is over once there is room again; the images' budget and the kubelet make some.
func isFull(free, size uint64) bool { return free < min(size/100, 2<<30) }

func (s *service) installed(told *wire.Health) {
	if s.settings.Installed == "" {
		return
	}
	found, err := installed.Read(s.settings.Installed)
	if installed.Unfinished(s.settings.Installed) || found != nil && found.State == installed.AtWork {
		told.Troubles = append(told.Troubles, "the installer is at work, or was stopped in the middle")
	}
	switch {
	case err != nil:
		told.Troubles = append(told.Troubles, fmt.Sprintf("what the installer has done cannot be read: %v", err))
	case found == nil:
		told.Troubles = append(told.Troubles, "the installer has not finished yet")
	default:
		told.Installer, told.InstallerDetail, told.Programs = string(found.State), found.Detail, found.Versions
		if len(found.Versions) == 0 && found.State != installed.AtWork {
			told.Troubles = append(told.Troubles, fmt.Sprintf("the installer has %s: %s", found.State, found.Detail))
		}
	}
}

// handlerTroubles are those of the handler of most sandboxes, and those of the others, which mount images lazily.
func (s *service) handlerTroubles(ctx context.Context) (troubles, lazy []string) {
	offered, err := s.runtime.Containers.Status(ctx, &cri.StatusRequest{})
	if err != nil {
		return []string{"containerd does not answer"}, nil
	}
	for number, handler := range s.settings.Handlers {
		trouble := s.handlerTrouble(ctx, offered.GetRuntimeHandlers(), handler)
		switch {
		case trouble == "":
		case number == 0:
			troubles = append(troubles, trouble)
		default:
			lazy = append(lazy, trouble)
		}
	}
	if s.settings.Mounts != "" {
		if !answers(ctx, filepath.Join(filepath.Dir(s.settings.Mounts), snapshotterSocket)) {
			lazy = append(lazy, "the snapshotter of lazily mounted images does not answer")
		}
		if !answers(ctx, s.settings.Mounts) {
			lazy = append(lazy, "the process that serves lazily mounted images does not answer")
		}
	}
	return troubles, lazy
}

// answers: one that hangs answers nothing at all.
func answers(ctx context.Context, socket string) bool {
	ctx, cancel := context.WithTimeout(ctx, snapshotterAnswersIn)
	defer cancel()
	return containerd.Answers(ctx, socket) == nil
}

func (s *service) handlerTrouble(ctx context.Context, offered []*cri.RuntimeHandler, handler string) string {
	there := func(one *cri.RuntimeHandler) bool { return one.GetName() == handler }
	if len(offered) > 0 && !slices.ContainsFunc(offered, there) {
		return fmt.Sprintf("containerd does not offer the runtime %s", handler)
	}
	return s.snapshotterTrouble(ctx, handler)
}

// snapshotterTrouble asks containerd whether it knows one: any answer but that it knows none, or that it is away, is one.
func (s *service) snapshotterTrouble(ctx context.Context, handler string) string {
	name, err := s.runtime.Snapshotter(ctx, handler)
	if err != nil {
		return err.Error()
	}
	ctx, cancel := context.WithTimeout(ctx, snapshotterAnswersIn)
	defer cancel()
	_, err = s.runtime.Snapshots.Stat(ctx, &snapshots.StatSnapshotRequest{Snapshotter: name, Key: "check"})
	if code := status.Code(err); code == codes.InvalidArgument || code == codes.Unavailable || code == codes.DeadlineExceeded {
		return fmt.Sprintf("the snapshotter %s does not answer: %s", name, status.Convert(err).Message())
	}
	return ""
}
