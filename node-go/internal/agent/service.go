package agent

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"rollbox.dev/node/internal/commit"
	"rollbox.dev/node/internal/containerd"
	"rollbox.dev/node/internal/images"
	"rollbox.dev/node/internal/installed"
	"rollbox.dev/node/internal/kernel"
	"rollbox.dev/node/internal/pods"
	"rollbox.dev/node/internal/problem"
	"rollbox.dev/node/internal/runsc"
	"rollbox.dev/node/internal/wire"
)

// Names of images and of repositories with a digest are shorter; so are all credentials that a registry gives.
const (
	maxNameBytes       = 1024
	maxCredentialBytes = 64 << 10
)

// service answers the calls of contract/node.proto.
type service struct {
	wire.UnimplementedNodeServer
	settings *Settings
	runtime  *containerd.Runtime
	store    *images.Store
	puller   *images.Puller
	killer   *kernel.Killer
	kernels  *runsc.Kernels
	commits  *commit.Commits
	pods     *pods.Finder
	broken   brokenImages
	log      *slog.Logger
}

func newService(
	settings *Settings, runtime *containerd.Runtime, use *images.Use, brought *images.PullMarks, log *slog.Logger,
) *service {
	found := &pods.Finder{Runtime: runtime, Namespace: settings.Namespace, Handlers: settings.workedOn()}
	kernels := runsc.New(settings.Runsc, log)
	return &service{
		settings: settings,
		runtime:  runtime,
		store:    images.NewStore(runtime, settings.Handlers, use, brought),
		puller:   images.NewPuller(runtime, use, brought, settings.Pulls),
		killer:   kernel.NewKiller(runtime, found, log),
		kernels:  kernels,
		commits:  commit.New(found, kernels, commit.NewSpool(settings.Spool, int64(settings.SpoolGibibytes)<<30), settings.Memory, log),
		pods:     found,
		log:      log,
	}
}

func (s *service) Describe(ctx context.Context, _ *wire.DescribeRequest) (*wire.Description, error) {
	version, err := s.runtime.Containers.Version(ctx, &cri.VersionRequest{})
	if err != nil {
		return nil, containerd.Failed("ask for the runtime's version", err)
	}
	snapshotter, err := s.runtime.Snapshotter(ctx, s.settings.Handlers[0])
	// A node that is not ready for sandboxes yet says so below.
	if missing := problem.From(err); err != nil && missing.Code != problem.IsolationMissing {
		return nil, err
	}
	told := &wire.Description{
		Node:        s.settings.Node,
		Runtime:     version.GetRuntimeName() + " " + version.GetRuntimeVersion(),
		Handler:     s.settings.Handlers[0],
		Snapshotter: snapshotter,
	}
	told.ImagesFreeBytes, told.ImagesSizeBytes = room(s.settings.Images)
	told.Health = s.health(ctx)
	told.HandlerVersion = told.Health.GetPrograms()[installed.Runsc]
	return told, nil
}

// room returns free and all bytes of the file system that a folder is on; nil: not known.
func room(folder string) (free, size *uint64) {
	var disk unix.Statfs_t
	if folder == "" || unix.Statfs(folder, &disk) != nil {
		return nil, nil
	}
	block := uint64(disk.Bsize)
	available, all := disk.Bavail*block, disk.Blocks*block
	return &available, &all
}

func (s *service) ListImages(ctx context.Context, request *wire.ListImagesRequest) (*wire.ImageList, error) {
	known := request.GetKnown()
	if len(known) > maxNameBytes {
		return nil, problem.New(problem.InvalidArgument, "known has %d bytes, more than a version has", len(known))
	}
	return s.store.Tell(ctx, known, request.GetLayers(), request.GetChanges())
}

func (s *service) Prefetch(request *wire.PrefetchRequest, stream grpc.ServerStreamingServer[wire.PrefetchProgress]) error {
	wanted, err := s.wanted(request)
	if err != nil {
		return err
	}
	name := wanted.Image
	s.log.Info("prefetch", "image", name, "handler", wanted.Handler)
	last, err := s.puller.Pull(stream.Context(), wanted, func(now images.Progress) error {
		state := wire.PrefetchProgress_WAITING
		if now.Pulling {
			state = wire.PrefetchProgress_PULLING
		}
		return stream.Send(progress(state, now))
	})
	if err != nil {
		s.log.Warn("prefetch failed", "image", name, "error", err)
		return err
	}
	s.log.Info("prefetched", "image", name, "bytes", last.Done)
	return stream.Send(progress(wire.PrefetchProgress_HERE, last))
}

func (s *service) wanted(request *wire.PrefetchRequest) (images.Wanted, error) {
	wanted := images.Wanted{Image: request.GetImage(), Handler: cmp.Or(request.GetHandler(), s.settings.Handlers[0])}
	if !slices.Contains(s.settings.Handlers, wanted.Handler) {
		detail := "%.64q is no runtime handler of sandboxes; there are: %s"
		return wanted, problem.New(problem.InvalidArgument, detail, wanted.Handler, strings.Join(s.settings.Handlers, ", "))
	}
	if err := checkName(wanted.Image); err != nil {
		return wanted, err
	}
	var err error
	wanted.Auth, err = authOf(request.GetCredentials())
	return wanted, err
}

func progress(state wire.PrefetchProgress_State, now images.Progress) *wire.PrefetchProgress {
	told := &wire.PrefetchProgress{State: state, DoneBytes: uint64(now.Done)}
	if now.Total >= 0 {
		total := uint64(now.Total)
		told.TotalBytes = &total
	}
	return told
}

// authOf returns nil for none: containerd's own settings hold then.
func authOf(given *wire.Credentials) (*cri.AuthConfig, error) {
	auth := &cri.AuthConfig{
		Username: given.GetUsername(), Password: given.GetPassword(), IdentityToken: given.GetIdentityToken(),
	}
	switch {
	case given == nil:
		return nil, nil
	case len(auth.Username)+len(auth.Password)+len(auth.IdentityToken) > maxCredentialBytes:
		return nil, problem.New(problem.InvalidArgument, "credentials have more than %d bytes", maxCredentialBytes)
	case auth.IdentityToken == "" && auth.Username == "":
		return nil, problem.New(problem.InvalidArgument, "credentials need a username or an identity_token")
	}
	return auth, nil
}

func (s *service) RemoveImage(ctx context.Context, request *wire.RemoveImageRequest) (*wire.ImageRemoved, error) {
	name := request.GetImage()
	if err := checkName(name); err != nil {
		return nil, err
	}
	removed, err := s.store.Remove(ctx, name, request.GetBrought())
	if err != nil {
		return nil, err
	}
	s.log.Info("image removed", "image", name, "removed", removed)
	return &wire.ImageRemoved{Removed: removed}, nil
}

func (s *service) Kill(ctx context.Context, request *wire.KillRequest) (*wire.Killed, error) {
	pids, err := s.killer.Kill(ctx, request.GetSandboxId())
	if err != nil {
		return nil, err
	}
	return &wire.Killed{Pids: pids}, nil
}

// checkName refuses what cannot be an image's name; the rest of it is the runtime's to judge.
func checkName(name string) error {
	if name == "" || len(name) > maxNameBytes || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return problem.New(problem.InvalidArgument, "%.64q is not the name of an image", name)
	}
	return nil
}
