package mirror

import (
	"context"

	"google.golang.org/grpc"

	"rollbox.dev/node/internal/wire"
)

// Server answers the service Mirror.
type Server struct {
	wire.UnimplementedMirrorServer
	Copier *Copier
}

// Copy copies an image and tells progress.
func (s *Server) Copy(asked *wire.CopyRequest, stream grpc.ServerStreamingServer[wire.CopyUpdate]) error {
	tell := func(now *wire.CopyProgress) error {
		return stream.Send(&wire.CopyUpdate{Body: &wire.CopyUpdate_Progress{Progress: now}})
	}
	copied, err := s.Copier.Copy(stream.Context(), asked, tell)
	if err != nil {
		return err
	}
	return stream.Send(&wire.CopyUpdate{Body: &wire.CopyUpdate_Copied{Copied: copied}})
}

// Find says what a reference of the private registry stands for.
func (s *Server) Find(ctx context.Context, asked *wire.FindRequest) (*wire.FindReply, error) {
	return s.Copier.Find(ctx, asked)
}

// Judge keeps whether a sandbox has started from a converted copy.
func (s *Server) Judge(ctx context.Context, asked *wire.JudgeRequest) (*wire.JudgeReply, error) {
	return s.Copier.Judge(ctx, asked)
}
