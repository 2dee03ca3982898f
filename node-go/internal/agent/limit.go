package agent

import (
	"context"

	"google.golang.org/grpc"

	"rollbox.dev/node/internal/problem"
)

// places are as many as there may be calls at once, over all connections.
type places chan struct{}

func (p places) take() error {
	select {
	case p <- struct{}{}:
		return nil
	default:
		return problem.New(problem.RateLimited, "%d calls are under way on this node", cap(p))
	}
}

func limitUnary(most int) grpc.UnaryServerInterceptor {
	free := make(places, most)
	return func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		if err := free.take(); err != nil {
			return nil, err
		}
		defer func() { <-free }()
		return next(ctx, request)
	}
}

func limitStream(most int) grpc.StreamServerInterceptor {
	free := make(places, most)
	return func(server any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
		if err := free.take(); err != nil {
			return err
		}
		defer func() { <-free }()
		return next(server, stream)
	}
}
