package mirror

import (
	"context"
	"sync"

	"golang.org/x/sync/semaphore"
)

// places bound how many copies are under way. Of one upstream registry at most half of them are, so that one that is slow
// holds up no others.
type places struct {
	all     *semaphore.Weighted
	perHost int64
	mu      sync.Mutex
	hosts   map[string]*hostPlaces
}

type hostPlaces struct {
	free  *semaphore.Weighted
	users int
}

func newPlaces(copies int) *places {
	return &places{
		all: semaphore.NewWeighted(int64(copies)), perHost: int64(max(1, copies/2)), hosts: map[string]*hostPlaces{},
	}
}

// place is one copy's. While its registry makes it wait the copy has only its place among those of that registry; what
// it reads by then it goes on reading.
type place struct {
	all      *semaphore.Weighted
	resuming chan struct{} // has room for one

	mu   sync.Mutex
	held bool
}

// take waits for a place. The function that it returns gives the place back.
func (p *places) take(ctx context.Context, host string) (*place, func(), error) {
	leave, err := p.enter(ctx, host)
	if err != nil {
		return nil, nil, err
	}
	taken := &place{all: p.all, resuming: make(chan struct{}, 1)}
	if err := taken.resume(ctx); err != nil {
		leave()
		return nil, nil, err
	}
	return taken, func() { taken.pause(); leave() }, nil
}

func (p *places) enter(ctx context.Context, host string) (func(), error) {
	p.mu.Lock()
	of := p.hosts[host]
	if of == nil {
		of = &hostPlaces{free: semaphore.NewWeighted(p.perHost)}
		p.hosts[host] = of
	}
	of.users++
	p.mu.Unlock()
	forget := func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if of.users--; of.users == 0 {
			delete(p.hosts, host)
		}
	}
	if err := of.free.Acquire(ctx, 1); err != nil {
		forget()
		return nil, err
	}
	return func() { of.free.Release(1); forget() }, nil
}

// pause gives the place to another copy.
func (p *place) pause() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held {
		p.held = false
		p.all.Release(1)
	}
}

// resume waits for a place again, unless another part of the copy has got it meanwhile.
func (p *place) resume(ctx context.Context) error {
	select {
	case p.resuming <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-p.resuming }()
	if p.has() {
		return nil
	}
	if err := p.all.Acquire(ctx, 1); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held = true
	return nil
}

func (p *place) has() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.held
}
