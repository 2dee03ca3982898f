package collector

import (
	"context"
	"time"

	"google.golang.org/grpc"

	"rollbox.dev/node/internal/problem"
	"rollbox.dev/node/internal/wire"
)

// Of a message; the limit of gRPC is 4 MiB.
const (
	imagesAtOnce = 500
	partsAtOnce  = 10_000
)

// Server answers the service Collector.
type Server struct {
	wire.UnimplementedCollectorServer
	Collector *Collector
}

// Room says how full the registry is.
func (s *Server) Room(context.Context, *wire.RoomRequest) (*wire.RoomReply, error) {
	room, err := s.Collector.Room()
	if err != nil {
		return nil, failed(err)
	}
	return &wire.RoomReply{
		DiskBytes: uint64(room.Disk), UsedBytes: uint64(room.Used), FreeBytes: uint64(room.Free), Full: room.Full,
	}, nil
}

// ListStored sends what there is.
func (s *Server) ListStored(_ *wire.ListStoredRequest, stream grpc.ServerStreamingServer[wire.ListStoredReply]) error {
	images, sizes, err := s.Collector.List(stream.Context())
	if err != nil {
		return failed(err)
	}
	positions := make(map[hash]uint32, len(sizes))
	next := &wire.ListStoredReply{}
	for _, one := range images {
		told := &wire.StoredImage{
			Repository: one.Repository, Sha256: one.Digest[:], UsedMs: uint64(one.Used.UnixMilli()), Recorded: one.Recorded,
			RecordedFor: one.Owners, Offered: one.Offered,
		}
		for _, source := range one.Sources {
			told.Sources = append(told.Sources, source[:])
		}
		for _, part := range one.Parts {
			at, there := positions[part]
			if !there {
				at = uint32(len(positions))
				positions[part] = at
				next.Parts = append(next.Parts, &wire.StoredPart{Sha256: part[:], SizeBytes: uint64(sizes[part])})
			}
			told.Parts = append(told.Parts, at)
		}
		next.Images = append(next.Images, told)
		if len(next.Images) >= imagesAtOnce || len(next.Parts) >= partsAtOnce {
			if err := stream.Send(next); err != nil {
				return err
			}
			next = &wire.ListStoredReply{}
		}
	}
	return stream.Send(next)
}

// UseCopy notes a use.
func (s *Server) UseCopy(_ context.Context, asked *wire.UseCopyRequest) (*wire.UseCopyReply, error) {
	there, err := s.Collector.Use(asked.GetRepository(), asked.GetDigest())
	if err != nil {
		return nil, failed(err)
	}
	return &wire.UseCopyReply{There: there}, nil
}

// RemoveCopy removes a copy.
func (s *Server) RemoveCopy(_ context.Context, asked *wire.RemoveCopyRequest) (*wire.RemoveCopyReply, error) {
	since := time.UnixMilli(int64(asked.GetUnusedSinceMs()))
	there, err := s.Collector.Remove(asked.GetRepository(), asked.GetDigest(), since)
	if err != nil {
		return nil, failed(err)
	}
	return &wire.RemoveCopyReply{There: there}, nil
}

// Recorded tells what the recorded copies of an owner take.
func (s *Server) Recorded(ctx context.Context, asked *wire.RecordedRequest) (*wire.RecordedReply, error) {
	if len(asked.GetOwner()) != ownerDigits {
		return nil, problem.New(problem.InvalidArgument, "owner %.100q is not %d digits", asked.GetOwner(), ownerDigits)
	}
	copies, total, err := s.Collector.RecordedBy(ctx, asked.GetOwner())
	if err != nil {
		return nil, failed(err)
	}
	return &wire.RecordedReply{Copies: uint64(copies), Bytes: uint64(total)}, nil
}

// Collect collects.
func (s *Server) Collect(ctx context.Context, asked *wire.CollectRequest) (*wire.CollectReply, error) {
	began := time.Now()
	done, err := s.Collector.Collect(ctx, asked.GetUrgent())
	s.Collector.log.Info(
		"collected", "urgent", asked.GetUrgent(), "freed_bytes", done.FreedBytes, "freed_blobs", done.FreedBlobs,
		"kept_blobs", done.KeptBlobs, "ended_uploads", done.EndedUploads, "took_ms", time.Since(began).Milliseconds(), "error", err,
	)
	if err != nil {
		return nil, failed(err)
	}
	return &wire.CollectReply{
		FreedBytes: uint64(done.FreedBytes), FreedBlobs: uint64(done.FreedBlobs), EndedUploads: uint64(done.EndedUploads),
		KeptBlobs: uint64(done.KeptBlobs), Blobs: uint64(done.Blobs),
	}, nil
}

// failed returns the problem that a failure is: but for refusals, one of the volume.
func failed(err error) error {
	found := problem.From(err)
	if found.Code != problem.Internal {
		return err
	}
	return problem.New(problem.Internal, "the registry's files: %w", err)
}
