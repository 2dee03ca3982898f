package agent

import (
	"context"
	"errors"
	"io"
	"path/filepath"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"rollbox.dev/node/internal/problem"
	"rollbox.dev/node/internal/wire"
)

// Beside the socket of the process that serves lazily mounted files.
const snapshotterSocket = "snapshotter.sock"

type recordings = grpc.BidiStreamingServer[wire.RecordRequest, wire.Recording]

// Record passes on what the snapshotter tells of one sandbox's container: this process has no right to look at a whole file
// system, and that one does not know whose a container is.
func (s *service) Record(stream recordings) error {
	asked, err := stream.Recv()
	if err != nil {
		return err
	}
	if s.settings.Mounts == "" {
		return problem.New(problem.Unsupported, "this agent was not told where the snapshotter is").With("value", "lazyPulling.enabled")
	}
	if asked.GetContainer() == "" || len(asked.GetContainer()) > maxNameBytes {
		return problem.New(problem.InvalidArgument, "container: the name of a container is needed")
	}
	container, err := s.pods.Container(stream.Context(), asked.GetSandboxId(), asked.GetContainer())
	if err != nil {
		return err
	}
	conn, err := grpc.NewClient(
		"unix://"+filepath.Join(filepath.Dir(s.settings.Mounts), snapshotterSocket),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
	)
	if err != nil {
		return err
	}
	defer conn.Close()
	files, err := s.recorded(stream, wire.NewRecorderClient(conn), container.ID)
	if err != nil {
		s.log.Warn("not recorded", "sandbox_id", asked.GetSandboxId(), "error", err)
		return err
	}
	s.log.Info("recorded", "sandbox_id", asked.GetSandboxId(), "files", files)
	return nil
}

// recorded returns how many files were told of.
func (s *service) recorded(stream recordings, recorder wire.RecorderClient, container string) (int, error) {
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	inner, err := recorder.Record(ctx)
	if err == nil {
		err = inner.Send(&wire.ContainerRecordRequest{ContainerId: container})
	}
	var begun *wire.Recording
	if err == nil || errors.Is(err, io.EOF) {
		begun, err = inner.Recv()
	}
	if err != nil {
		return 0, fromRecorder(err)
	}
	if err := stream.Send(begun); err != nil {
		return 0, err
	}
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		return 0, errors.Join(err, problem.New(problem.InvalidArgument, "one message says what is recorded"))
	}
	if err := inner.CloseSend(); err != nil {
		return 0, fromRecorder(err)
	}
	told, err := inner.Recv()
	if err != nil {
		return 0, fromRecorder(err)
	}
	return len(told.GetOpened().GetPaths()), stream.Send(told)
}

// fromRecorder says for a failed call what the control plane can tell a user.
func fromRecorder(err error) error {
	said := status.Convert(err).Message()
	switch status.Code(err) {
	case codes.Unimplemented:
		return problem.New(problem.Unsupported, "the snapshotter of this node records nothing: %s", said).With("option", "record")
	case codes.NotFound:
		return problem.New(problem.Unsupported, "only a sandbox that mounts its image lazily is recorded: %s", said).With("option", "record")
	case codes.ResourceExhausted:
		return problem.New(problem.CapacityUnavailable, "this node records no more at once: %s", said)
	}
	return problem.New(problem.UpstreamTimeout, "the snapshotter of this node: %w", err)
}
