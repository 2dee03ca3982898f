package agent

import (
	"sync"
	"time"

	"google.golang.org/grpc"

	"rollbox.dev/node/internal/commit"
	"rollbox.dev/node/internal/problem"
	"rollbox.dev/node/internal/wire"
)

const (
	toldEvery = 500 * time.Millisecond
	// Certificates of an authority, and what a layer may be at most.
	maxAuthorityBytes = 64 << 10
	maxLayerBytes     = 1 << 40
	maxStill          = 2 * time.Minute
)

func (s *service) Commit(asked *wire.CommitRequest, stream grpc.ServerStreamingServer[wire.CommitProgress]) error {
	if s.settings.Runsc == "" {
		return problem.New(problem.Unsupported, "this agent was not told where gVisor's kernels are").With("value", "nodeAgent.runsc.root")
	}
	if err := checkCommit(asked); err != nil {
		return err
	}
	log := s.log.With("sandbox_id", asked.GetSandboxId(), "target", asked.GetTarget())
	log.Info("commit")
	told := &teller{stream: stream}
	made, err := s.commits.Commit(stream.Context(), asked, told.tell)
	if err != nil {
		log.Warn("commit failed", "error", err)
		return err
	}
	log.Info("committed", "digest", made.GetDigest(), "bytes", made.GetSizeBytes(), "still_us", made.GetStillUs())
	return stream.Send(&wire.CommitProgress{Is: &wire.CommitProgress_Committed{Committed: made}})
}

func checkCommit(asked *wire.CommitRequest) error {
	for _, name := range []string{asked.GetBase(), asked.GetTarget(), asked.GetRegistry().GetAddress()} {
		if err := checkName(name); err != nil {
			return err
		}
	}
	credentials := asked.GetRegistry().GetCredentials()
	if _, err := authOf(credentials); err != nil {
		return err
	}
	still := time.Duration(asked.GetStillMs()) * time.Millisecond
	switch {
	case credentials == nil:
		return problem.New(problem.InvalidArgument, "registry: credentials are needed")
	case len(asked.GetRegistry().GetAuthority()) > maxAuthorityBytes:
		return problem.New(problem.InvalidArgument, "registry: its authority has more than %d bytes", maxAuthorityBytes)
	case asked.GetContainer() == "" || len(asked.GetContainer()) > maxNameBytes:
		return problem.New(problem.InvalidArgument, "container: the name of a container is needed")
	case asked.GetMaxBytes() < 1 || asked.GetMaxBytes() > maxLayerBytes:
		return problem.New(problem.InvalidArgument, "max_bytes: %d is not from 1 to %d", asked.GetMaxBytes(), int64(maxLayerBytes))
	case still < time.Second || still > maxStill:
		return problem.New(problem.InvalidArgument, "still_ms: %d is not from 1000 to %d", asked.GetStillMs(), maxStill.Milliseconds())
	}
	return nil
}

// teller sends progress now and then. A caller that has gone is noticed by the call's context.
type teller struct {
	stream grpc.ServerStreamingServer[wire.CommitProgress]
	mu     sync.Mutex
	last   time.Time
}

func (t *teller) tell(now commit.Progress) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if time.Since(t.last) < toldEvery {
		return
	}
	t.last = time.Now()
	read := &wire.CommitProgress_Reading{DoneBytes: uint64(now.Done), TotalBytes: uint64(now.Total)}
	_ = t.stream.Send(&wire.CommitProgress{Is: &wire.CommitProgress_Reading_{Reading: read}})
}
