package mirror

import (
	"context"
	"sync"
	"time"

	"rollbox.dev/node/internal/wire"
)

// tellEvery bounds how often a caller is told of progress.
const tellEvery = 200 * time.Millisecond

// flight is one copy under way, and all who wait for it.
type flight struct {
	request request
	cancel  context.CancelFunc
	done    chan struct{}
	result  *wire.Copied
	err     error

	mu      sync.Mutex
	changed chan struct{}
	waiting int
	state   progress
}

type progress struct {
	phase                 wire.CopyProgress_Phase
	doneLayers, layers    int
	doneBytes, totalBytes int64
	pausedUntil           time.Time
}

func (f *flight) change(by func(*progress)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	by(&f.state)
	close(f.changed)
	f.changed = make(chan struct{})
}

// like tells the progress of the copy that this one waits for.
func (f *flight) like(now *wire.CopyProgress) {
	f.change(func(p *progress) {
		p.phase, p.doneLayers, p.layers = now.GetPhase(), int(now.GetDoneLayers()), int(now.GetTotalLayers())
		p.doneBytes, p.totalBytes, p.pausedUntil = int64(now.GetDoneBytes()), int64(now.GetTotalBytes()), time.Time{}
		if now.GetPhase() == wire.CopyProgress_PAUSED {
			p.pausedUntil = time.Now().Add(time.Duration(now.GetPauseMs()) * time.Millisecond)
		}
	})
}

func (f *flight) look() (*wire.CopyProgress, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := &wire.CopyProgress{
		Phase: f.state.phase, DoneLayers: uint32(f.state.doneLayers), TotalLayers: uint32(f.state.layers),
		DoneBytes: uint64(max(0, f.state.doneBytes)), TotalBytes: uint64(f.state.totalBytes),
	}
	if left := time.Until(f.state.pausedUntil); left > 0 {
		now.Phase, now.PauseMs = wire.CopyProgress_PAUSED, uint64(left.Milliseconds())
	}
	return now, f.changed
}

// follow tells progress until the copy is over.
func (f *flight) follow(ctx context.Context, tell func(*wire.CopyProgress) error) (*wire.Copied, error) {
	for {
		now, changed := f.look()
		if err := tell(now); err != nil {
			return nil, err
		}
		quiet := time.After(tellEvery)
		for wait := true; wait; {
			select {
			case <-f.done:
				return f.result, f.err
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-changed:
				changed = nil
				if quiet == nil {
					wait = false
				}
			case <-quiet:
				quiet, wait = nil, changed != nil
			}
		}
	}
}

// flights are the copies under way by key.
type flights struct {
	mu   sync.Mutex
	by   map[string]*flight
	runs sync.WaitGroup
}

// join returns the copy that a request is for, which run begins unless it is under way.
func (f *flights) join(asked request, run func(context.Context, *flight)) *flight {
	f.mu.Lock()
	defer f.mu.Unlock()
	if found := f.by[asked.key()]; found != nil {
		found.waiting++
		return found
	}
	ctx, cancel := context.WithCancel(context.Background())
	begun := &flight{
		request: asked, cancel: cancel, done: make(chan struct{}), changed: make(chan struct{}), waiting: 1,
		state: progress{phase: wire.CopyProgress_WAITING},
	}
	f.by[asked.key()] = begun
	f.runs.Go(func() {
		defer cancel()
		run(ctx, begun)
		f.mu.Lock()
		// A copy that everybody has left may have a successor by now.
		if f.by[asked.key()] == begun {
			delete(f.by, asked.key())
		}
		f.mu.Unlock()
		close(begun.done)
	})
	return begun
}

// leave ends a copy that nobody waits for any more.
func (f *flights) leave(left *flight) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if left.waiting--; left.waiting == 0 {
		left.cancel()
		if f.by[left.request.key()] == left {
			delete(f.by, left.request.key())
		}
	}
}
