package snapshotter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/containerd/log"
	"github.com/containerd/stargz-snapshotter/fusemanager"
	api "github.com/containerd/stargz-snapshotter/fusemanager/api"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

// Deadlines of calls to the process that serves the mounts: without them one that hangs would hang containerd.
const (
	statusTimeout  = 5 * time.Second
	mountTimeout   = 40 * time.Second
	checkTimeout   = 15 * time.Second
	unmountTimeout = 10 * time.Second
)

// mounts is the file system of all lazily mounted layers, as the snapshotter sees it.
type mounts struct {
	client  api.StargzFuseManagerServiceClient
	root    string
	config  []byte
	trusted []string
	counts  *counts
}

func dialMounts(s *Settings, counts *counts) (*mounts, error) {
	conn, err := grpc.NewClient("unix://"+s.MountsSocket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	config, err := json.Marshal(fusemanager.Config{Config: libraryConfig(s)})
	if err != nil {
		return nil, err
	}
	client := api.NewStargzFuseManagerServiceClient(conn)
	return &mounts{client: client, root: s.Root, config: config, trusted: s.Trusted, counts: counts}, nil
}

// ready sees to it that the other process has its configuration: one that was started again has none.
func (m *mounts) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	answer, err := m.client.Status(ctx, &api.StatusRequest{}, grpc.WaitForReady(true))
	if err != nil {
		return fmt.Errorf("the process that serves the mounts: %w", err)
	}
	if answer.Status == fusemanager.FuseManagerReady {
		return nil
	}
	_, err = m.client.Init(ctx, &api.InitRequest{Root: m.root, Config: m.config})
	return err
}

// Mount serves a layer at the mount point, or says why its content has to be fetched whole.
func (m *mounts) Mount(ctx context.Context, mountpoint string, labels map[string]string) error {
	err := m.mount(ctx, mountpoint, labels)
	m.counts.layer(err)
	return err
}

func (m *mounts) mount(ctx context.Context, mountpoint string, labels map[string]string) error {
	if err := lazily(labels, m.trusted); err != nil {
		return err
	}
	if err := m.ready(ctx); err != nil {
		return &errNotLazy{ReasonMounts, err}
	}
	ctx, cancel := context.WithTimeout(ctx, mountTimeout)
	defer cancel()
	_, err := m.client.Mount(ctx, &api.MountRequest{Mountpoint: mountpoint, Labels: labels})
	if err == nil {
		return nil
	}
	if code := status.Code(err); code == codes.Unavailable || code == codes.DeadlineExceeded {
		return &errNotLazy{ReasonMounts, err}
	}
	if refused(err) {
		return &errNotLazy{ReasonDenied, err}
	}
	return &errNotLazy{ReasonRegistry, err}
}

// refused tells whether a registry has refused the credentials. The library has no type for it, and it comes by gRPC.
func refused(err error) bool {
	text := err.Error()
	for _, said := range []string{"with code 401", "with code 403", "authorization failed"} {
		if strings.Contains(text, said) {
			return true
		}
	}
	return false
}

// Check makes sure that a layer that was mounted is served, and mounts it again where it is not: after the process that
// serves the mounts, or the machine, was started anew. So what a registry that is away holds back is only what is used.
func (m *mounts) Check(ctx context.Context, mountpoint string, labels map[string]string) error {
	if err := m.ready(ctx); err != nil {
		return err
	}
	if served(mountpoint) {
		return m.check(ctx, mountpoint, labels)
	}
	// Of one that died only the mount is left; whoever has it open keeps it, and its errors.
	if err := unix.Unmount(mountpoint, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("remove the dead mount at %s: %w", mountpoint, err)
	}
	log.G(ctx).WithField("mountpoint", mountpoint).Info("mounting again")
	err := m.mount(ctx, mountpoint, labels)
	m.counts.again(err)
	return err
}

func (m *mounts) check(ctx context.Context, mountpoint string, labels map[string]string) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	_, err := m.client.Check(ctx, &api.CheckRequest{Mountpoint: mountpoint, Labels: labels})
	return err
}

// Unmount ends the service of a layer that no snapshot needs any more.
func (m *mounts) Unmount(ctx context.Context, mountpoint string) error {
	if err := m.ready(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, unmountTimeout)
	defer cancel()
	_, err := m.client.Unmount(ctx, &api.UnmountRequest{Mountpoint: mountpoint})
	return err
}

// fuseMagic is what the kernel calls file systems that a process serves.
const fuseMagic = 0x65735546

// served tells whether a living process serves the mount point. Of a dead one the kernel says that it is not connected.
func served(mountpoint string) bool {
	var stat unix.Statfs_t
	return unix.Statfs(mountpoint, &stat) == nil && stat.Type == fuseMagic
}
