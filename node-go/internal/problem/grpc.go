package problem

import (
	"context"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"rollbox.dev/node/internal/wire"
)

// The contract sends one encoded Problem here, not the Status message that gRPC's own functions would write.
const detailsKey = "grpc-status-details-bin"

// Unary answers a failed call with its problem. It is the outermost interceptor.
func Unary(ctx context.Context, request any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	answer, err := next(ctx, request)
	if err == nil {
		return answer, nil
	}
	found := From(err)
	if err := grpc.SetTrailer(ctx, found.trailer()); err != nil {
		return nil, err
	}
	return nil, found.status()
}

// Stream is Unary for calls with streams.
func Stream(server any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	err := next(server, stream)
	if err == nil {
		return nil
	}
	found := From(err)
	stream.SetTrailer(found.trailer())
	return found.status()
}

// Received returns the problem of a failed call from its trailer; nil when there is none of this contract. The status
// itself is of no use in Go: its gRPC takes details that are no Status message for a broken answer.
func Received(trailer metadata.MD) *Problem {
	var read wire.Problem
	values := trailer.Get(detailsKey)
	if len(values) != 1 || proto.Unmarshal([]byte(values[0]), &read) != nil {
		return nil
	}
	if _, known := statuses[Code(read.Code)]; !known {
		return nil
	}
	return &Problem{Code: Code(read.Code), Detail: read.Detail, Details: read.Details}
}

func (p *Problem) status() error {
	return status.Error(statuses[p.Code], valid(p.Detail))
}

func (p *Problem) trailer() metadata.MD {
	message := &wire.Problem{Code: string(p.Code), Detail: valid(p.Detail), Details: map[string]string{}}
	for name, value := range p.Details {
		message.Details[valid(name)] = valid(value)
	}
	encoded, err := proto.Marshal(message)
	if err != nil {
		// All of its text is valid, and nothing else can be wrong with it.
		panic(err)
	}
	return metadata.Pairs(detailsKey, string(encoded))
}

// Text of the runtime may hold any bytes, and a protobuf string may not.
func valid(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }
