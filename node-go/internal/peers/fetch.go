package peers

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"rollbox.dev/node/internal/avoid"
)

const (
	// Nodes that are tried for one request, before it is left to the registry.
	tries = 3
	// A layer whose transfer from a node failed is left to the registry for so long: what was sent may have been wrong,
	// and containerd notices that only once it is whole.
	leftFor = 10 * time.Minute
	// What a node that fetches from the registry is waited for at most, and how often it is looked.
	arrivesIn  = 10 * time.Minute
	lookEvery  = 250 * time.Millisecond
	renewEvery = leaseFor / 3
	// Trackers that are told at the same time what this node has.
	callsAtOnce = 8
)

// fetcher finds nodes for what this node's containerd wants.
type fetcher struct {
	self    string
	store   store
	tracker *tracker
	members *members
	caller  *caller
	counts  *counts
	log     *slog.Logger
	// Ends what goes on behind an answer.
	ctx     context.Context
	running sync.WaitGroup
	mutex   sync.Mutex
	left    *avoid.Until
	// Layers that are waited for already.
	arriving map[string]bool
	// Which tracker was told of each layer that this node has; only announce uses it.
	told map[string]string
}

// ended is how a transfer has ended.
type ended int

const (
	// What came is the layer.
	whole ended = iota
	// It broke off, or was something else.
	broken
	// Whoever wanted it has gone.
	unwanted
)

// transfer is a layer that a node sends. `end` is called once.
type transfer struct {
	answer *http.Response
	end    func(ended)
}

// fetch returns what a node sends of a layer; nil: the registry has to be asked.
func (f *fetcher) fetch(ctx context.Context, digest string) *transfer {
	if f.isLeft(digest) {
		return nil
	}
	for range tries {
		tracker, found := f.granted(ctx, digest)
		if found.Lease == "" || ctx.Err() != nil {
			return nil
		}
		if found.From == "" {
			f.awaited(tracker, digest, found.Lease)
			return nil
		}
		// Only members have our certificate; an address from elsewhere would be somebody's to choose.
		if !f.members.knows(found.From) {
			return nil
		}
		answer, err := f.caller.blob(ctx, found.From, digest)
		if err == nil {
			return &transfer{answer, f.ending(tracker, digest, found.Lease)}
		}
		f.counts.fetches.WithLabelValues("failed").Inc()
		f.log.Info("a node did not send a layer", "node", found.From, "layer", digest, "error", err)
		f.say(tracker, "done", call{Digest: digest, Lease: found.Lease, Gone: errors.Is(err, errGone)})
	}
	return nil
}

// granted asks the layer's tracker, or the next one where that is away.
func (f *fetcher) granted(ctx context.Context, digest string) (string, grant) {
	for _, tracker := range f.members.trackers(digest) {
		if tracker == f.self {
			waiting, cancel := context.WithTimeout(ctx, waitFor)
			defer cancel()
			return tracker, f.tracker.ask(waiting, digest, f.self)
		}
		found, err := f.caller.ask(ctx, tracker, digest, f.self)
		if err == nil {
			return tracker, found
		}
		f.log.Info("a tracker does not answer", "node", tracker, "error", err)
	}
	return "", grant{}
}

// ending renews a lease until the transfer ends.
func (f *fetcher) ending(tracker, digest, lease string) func(ended) {
	ctx, cancel := context.WithCancel(f.ctx)
	f.running.Go(func() { f.renewed(ctx, tracker, digest, lease) })
	return func(how ended) {
		cancel()
		f.say(tracker, "done", call{Digest: digest, Lease: lease})
		switch how {
		case whole:
			f.counts.fetches.WithLabelValues("node").Inc()
			f.awaited(tracker, digest, "")
		case broken:
			f.counts.fetches.WithLabelValues("failed").Inc()
			f.leave(digest)
		}
	}
}

func (f *fetcher) renewed(ctx context.Context, tracker, digest, lease string) {
	ticks := time.NewTicker(renewEvery)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
			f.say(tracker, "renew", call{Digest: digest, Lease: lease})
		}
	}
}

// awaited waits, behind the answer, until containerd has the layer, and says so; with a lease it is the registry's.
func (f *fetcher) awaited(tracker, digest, lease string) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	if f.arriving[digest] {
		if lease != "" {
			f.running.Go(func() { f.say(tracker, "done", call{Digest: digest, Lease: lease}) })
		}
		return
	}
	f.arriving[digest] = true
	f.running.Go(func() {
		here := f.arrives(tracker, digest, lease)
		f.mutex.Lock()
		delete(f.arriving, digest)
		f.mutex.Unlock()
		if here {
			f.say(tracker, "have", call{Node: f.self, Digests: []string{digest}})
		}
		if lease != "" {
			f.say(tracker, "done", call{Digest: digest, Lease: lease})
		}
		if here && lease != "" {
			f.counts.fetches.WithLabelValues("registry").Inc()
		}
	})
}

func (f *fetcher) arrives(tracker, digest, lease string) bool {
	ctx, cancel := context.WithTimeout(f.ctx, arrivesIn)
	defer cancel()
	if lease != "" {
		f.running.Go(func() { f.renewed(ctx, tracker, digest, lease) })
	}
	ticks := time.NewTicker(lookEvery)
	defer ticks.Stop()
	for !f.store.has(digest) {
		select {
		case <-ctx.Done():
			return false
		case <-ticks.C:
		}
	}
	return true
}

func (f *fetcher) say(tracker, verb string, what call) {
	if tracker == f.self {
		switch verb {
		case "have":
			f.tracker.have(f.self, what.Digests)
		case "renew":
			f.tracker.renew(what.Digest, what.Lease)
		case "done":
			f.tracker.done(what.Digest, what.Lease, what.Gone)
		}
		return
	}
	if err := f.caller.tell(f.ctx, tracker, verb, what); err != nil && f.ctx.Err() == nil {
		f.log.Info("a tracker was not told", "node", tracker, "what", verb, "error", err)
	}
}

// announce says to trackers what this node has: all of it, or what its trackers do not know.
func (f *fetcher) announce(all bool) error {
	digests, err := f.store.all()
	if err != nil {
		return err
	}
	told, by := make(map[string]string, len(digests)), map[string][]string{}
	for _, digest := range digests {
		tracker := f.members.trackers(digest)[0]
		if told[digest] = tracker; all || f.told[digest] != tracker {
			by[tracker] = append(by[tracker], digest)
		}
	}
	f.told = told
	var calls errgroup.Group
	calls.SetLimit(callsAtOnce)
	for tracker, its := range by {
		calls.Go(func() error {
			for part := range slices.Chunk(its, maxNamed) {
				f.say(tracker, "have", call{Node: f.self, Digests: part})
			}
			return nil
		})
	}
	return calls.Wait()
}

func (f *fetcher) isLeft(digest string) bool {
	return f.left.Left(digest) > 0
}

func (f *fetcher) leave(digest string) {
	f.left.Set(digest, time.Now().Add(leftFor))
}
