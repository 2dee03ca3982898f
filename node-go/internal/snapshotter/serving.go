package snapshotter

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/containerd/log"
	"github.com/containerd/stargz-snapshotter/fusemanager"
	api "github.com/containerd/stargz-snapshotter/fusemanager/api"
	"github.com/containerd/stargz-snapshotter/service"
	"github.com/moby/sys/mountinfo"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"

	"rollbox.dev/node/internal/telemetry"
)

// Mounts serves the files of lazily mounted layers until the context ends. Then they are gone for every sandbox that
// runs from them, so it is not to be stopped on a node where one does.
func Mounts(ctx context.Context, s *Settings) error {
	if err := s.logTo(); err != nil {
		return err
	}
	held, err := alone(s.Root)
	if err != nil {
		return err
	}
	defer held.Close()
	if err := recordAccesses(s.Accesses); err != nil {
		return err
	}
	if err := recordFailures(s.MountsSocket, prometheus.DefaultRegisterer); err != nil {
		return err
	}
	if err := forget(ctx, s.Root); err != nil {
		return err
	}
	hosts := registryHosts(s.Registries)
	fusemanager.RegisterConfigFunc(func(*fusemanager.ConfigContext) ([]service.Option, error) {
		return []service.Option{service.WithCustomRegistryHosts(hosts)}, nil
	})
	server := grpc.NewServer()
	// The listener is only kept in it.
	manager, err := fusemanager.NewFuseManager(ctx, net.Listener(nil), server, storePath(s.Root), s.MountsSocket)
	if err != nil {
		return err
	}
	api.RegisterStargzFuseManagerServiceServer(server, manager)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return telemetry.Serve(ctx, s.MountsMetrics, withoutLayers{prometheus.DefaultGatherer}) })
	group.Go(func() error { return serveSocket(ctx, server, s.MountsSocket) })
	log.G(ctx).WithField("socket", s.MountsSocket).Info("serving mounts")
	return errors.Join(group.Wait(), manager.Close(context.WithoutCancel(ctx)))
}

func storePath(root string) string { return filepath.Join(root, "mounts.db") }

// forget removes what a process before this one has left: its mounts, which nobody serves any more, with what runs from
// them, its list of them, and its caches, which the library can not take over. Layers are mounted again when they are
// used (see Check).
func forget(ctx context.Context, root string) error {
	below := filepath.Join(root, "snapshotter", "snapshots") + "/"
	dead, err := mountinfo.GetMounts(func(one *mountinfo.Info) (skip, stop bool) {
		return !strings.HasPrefix(one.Mountpoint, below), false
	})
	if err != nil {
		return err
	}
	var gone []string
	for _, one := range dead {
		gone = append(gone, one.Mountpoint)
		log.G(ctx).WithField("mountpoint", one.Mountpoint).Warn("removing a mount that nobody serves")
		if err := unix.Unmount(one.Mountpoint, unix.MNT_DETACH); err != nil {
			return fmt.Errorf("remove the dead mount at %s: %w", one.Mountpoint, err)
		}
	}
	killed, err := killReaders("/proc", gone)
	if killed > 0 {
		log.G(ctx).WithField("processes", killed).Error("killed what ran from mounts that nobody serves any more")
	}
	return errors.Join(err, removeFile(storePath(root)), os.RemoveAll(filepath.Join(root, "stargz")))
}

func removeFile(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
