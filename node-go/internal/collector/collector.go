package collector

import (
	"context"
	"log/slog"
	"os"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
)

// Pace is how long things are left alone. Real times differ from these in tests alone.
type Pace struct {
	// Young is what was written within this time: it may be part of an image that is being pushed. A push that takes
	// longer for one blob than that sends it again.
	Young time.Duration
	// Settle is longer than any one call to the registry takes between its look at a blob and what it writes then: both
	// are operations on local files, with nothing between them that waits for a client.
	Settle time.Duration
	// Idle is for how long nothing was written to an upload that has broken off: who sends something is given up sooner.
	Idle time.Duration
}

// Paces are those of a usual collection, and of one while the registry is full.
var (
	Usual  = Pace{Young: time.Hour, Settle: 2 * time.Minute, Idle: 30 * time.Minute}
	Urgent = Pace{Young: 10 * time.Minute, Settle: time.Minute, Idle: 5 * time.Minute}
)

// Folders without content, and what an index that was never finished has left, go after such a time.
const leftovers = 24 * time.Hour

// Collector looks after the files of one registry; there is no second one.
type Collector struct {
	layout   layout
	capacity int64
	log      *slog.Logger
	usual    Pace
	urgent   Pace
	// One collection at a time, which alone moves blobs and reads `known`.
	rounds *semaphore.Weighted
	known  map[hash]named
	// Between a look at a copy and its use or removal.
	copies sync.Mutex
	// Of each repository of copies the tags that lead to its manifests, when they were listed last.
	leads map[string]map[hash][]string
	usage usage
	// Waits until those are done who may have seen a file before it was moved; `step` is told of each step. Tests have
	// their own.
	settle func(context.Context, time.Duration) error
	step   func()
}

// Options are what a collector is given.
type Options struct {
	Folder   string // the registry's `rootdirectory`
	Capacity int64  // what the registry may have of its volume; 0: all
	Usual    Pace
	Urgent   Pace
	Log      *slog.Logger
}

// New returns the collector of a registry.
func New(options Options) (*Collector, error) {
	c := &Collector{
		layout: layout{options.Folder}, capacity: options.Capacity, log: options.Log, usual: options.Usual,
		urgent: options.Urgent, rounds: semaphore.NewWeighted(1), known: map[hash]named{}, usage: usage{used: -1},
		settle: sleep, step: func() {},
	}
	if err := os.MkdirAll(c.layout.trash(), 0o755); err != nil {
		return nil, err
	}
	c.keepReserve()
	return c, nil
}

// Recover renames back what one that was killed has put aside and somebody needs, so that nobody waits for the next one.
func (c *Collector) Recover(ctx context.Context) error {
	if err := c.rounds.Acquire(ctx, 1); err != nil {
		return err
	}
	defer c.rounds.Release(1)
	return (&round{Collector: c, pace: c.usual}).restore(ctx)
}

// Result is what a collection has done.
type Result struct {
	FreedBytes                                 int64
	FreedBlobs, EndedUploads, KeptBlobs, Blobs int
}

// Collect gives back the room of what no image has. It may be broken off, or killed, at any point.
func (c *Collector) Collect(ctx context.Context, urgent bool) (Result, error) {
	pace := c.usual
	if urgent {
		pace = c.urgent
	}
	if err := c.rounds.Acquire(ctx, 1); err != nil {
		return Result{}, err
	}
	defer c.rounds.Release(1)
	defer c.keepReserve()
	one := &round{Collector: c, pace: pace}
	err := one.run(ctx)
	return one.result, err
}
