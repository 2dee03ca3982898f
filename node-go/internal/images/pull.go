package images

import (
	"context"
	"crypto/sha256"
	"fmt"
	"sync"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"rollbox.dev/node/internal/containerd"
	"rollbox.dev/node/internal/problem"
)

const (
	// How often progress is looked at.
	tick = 500 * time.Millisecond
	// Pulls that may wait for one of the places.
	maxWaiting = 1024
	// By this annotation containerd pulls for the snapshotter of a runtime handler, as it does for pods that have it.
	handlerAnnotation = "io.containerd.cri.runtime-handler"
)

// Puller pulls images, a bounded number at once. Its equal calls join.
type Puller struct {
	runtime *containerd.Runtime
	use     *Use
	brought *PullMarks
	places  chan struct{}
	running sync.WaitGroup
	mutex   sync.Mutex
	closed  bool
	pulls   map[key]*pull
}

// Wanted is an image, for whom, and for the sandboxes of which runtime handler. Auth may be nil: containerd's own
// settings hold then.
type Wanted struct {
	Image   string
	Handler string
	Auth    *cri.AuthConfig
}

// key is the digest of what is wanted: a caller must not join the pull of one who may more.
type key [sha256.Size]byte

type pull struct {
	wanted  Wanted
	cancel  context.CancelFunc
	callers int
	// Closed at the end; err is valid then.
	done chan struct{}
	err  error
	// What was seen last; guarded by mutex.
	mutex    sync.Mutex
	progress Progress
}

// NewPuller returns a puller that has `atOnce` places.
func NewPuller(runtime *containerd.Runtime, use *Use, brought *PullMarks, atOnce int) *Puller {
	return &Puller{runtime: runtime, use: use, brought: brought, places: make(chan struct{}, atOnce), pulls: map[key]*pull{}}
}

// Pull pulls an image and returns when it is here. It tells progress at the beginning and whenever there is some; an
// error of `tell` ends the call. The pull goes on as long as one of its callers is there.
func (p *Puller) Pull(ctx context.Context, wanted Wanted, tell func(Progress) error) (Progress, error) {
	id := wanted.key()
	one, err := p.join(id, wanted)
	if err != nil {
		return Progress{}, err
	}
	defer p.leave(id, one)
	ticks := time.NewTicker(tick)
	defer ticks.Stop()
	told := Progress{Total: -2}
	for {
		if now := one.now(); now != told {
			if err := tell(now); err != nil {
				return now, err
			}
			told = now
		}
		select {
		case <-one.done:
			return one.now(), one.err
		case <-ctx.Done():
			return told, ctx.Err()
		case <-ticks.C:
		}
	}
}

// End ends all pulls and refuses further ones.
func (p *Puller) End() {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.closed = true
	for _, one := range p.pulls {
		one.cancel()
	}
}

// Wait returns when all pulls have ended.
func (p *Puller) Wait() { p.running.Wait() }

func (p *Puller) join(id key, wanted Wanted) (*pull, error) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.closed {
		return nil, problem.New(problem.Draining, "this node agent is shutting down")
	}
	one := p.pulls[id]
	if one == nil {
		if len(p.pulls) >= maxWaiting {
			return nil, problem.New(problem.RateLimited, "%d pulls wait on this node already", len(p.pulls))
		}
		ctx, cancel := context.WithCancel(context.Background())
		one = &pull{wanted: wanted, cancel: cancel, done: make(chan struct{}), progress: Progress{Total: -1}}
		p.pulls[id] = one
		p.running.Go(func() { p.run(ctx, id, one) })
	}
	one.callers++
	return one, nil
}

func (p *Puller) leave(id key, one *pull) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if one.callers--; one.callers == 0 {
		one.cancel()
		p.forget(id, one)
	}
}

// forget makes room for a pull of the same name. It is called with the mutex.
func (p *Puller) forget(id key, one *pull) {
	if p.pulls[id] == one {
		delete(p.pulls, id)
	}
}

func (p *Puller) run(ctx context.Context, id key, one *pull) {
	defer one.cancel()
	one.err = p.placed(ctx, one)
	close(one.done)
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.forget(id, one)
}

func (p *Puller) placed(ctx context.Context, one *pull) error {
	select {
	case p.places <- struct{}{}:
	case <-ctx.Done():
		return problem.New(problem.Draining, "the pull of %s was ended: this node agent is shutting down", one.wanted.Image)
	}
	defer func() { <-p.places }()
	one.see(Progress{Pulling: true, Total: -1})
	measured, stop := context.WithCancel(ctx)
	var measuring sync.WaitGroup
	measure := newMeter(p.runtime.Content, one.wanted.Image)
	measuring.Go(func() { one.measure(measured, measure) })
	began := time.Now()
	pulled, err := p.runtime.Images.PullImage(ctx, &cri.PullImageRequest{
		Image:         &cri.ImageSpec{Image: one.wanted.Image},
		Auth:          one.wanted.Auth,
		SandboxConfig: &cri.PodSandboxConfig{Annotations: map[string]string{handlerAnnotation: one.wanted.Handler}},
	})
	stop()
	measuring.Wait()
	switch {
	case ctx.Err() != nil:
		return problem.New(problem.Draining, "the pull of %s was ended: this node agent is shutting down", one.wanted.Image)
	case err != nil:
		return notPulled(one.wanted.Image, err)
	}
	done, total := measure.count(ctx)
	one.see(Progress{Pulling: true, Done: done, Total: total})
	p.use.record(pulled.GetImageRef())
	if err := p.brought.since(ctx, pulled.GetImageRef(), began); err != nil {
		// It is here; only it stays for good unless the kubelet removes it.
		p.brought.log.Warn("an image is not known to be brought by us", "image", one.wanted.Image, "error", err)
	}
	return nil
}

func (one *pull) measure(ctx context.Context, measure *meter) {
	ticks := time.NewTicker(tick)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
		if done, total := measure.count(ctx); ctx.Err() == nil {
			one.see(Progress{Pulling: true, Done: done, Total: total})
		}
	}
}

func (one *pull) see(now Progress) {
	one.mutex.Lock()
	defer one.mutex.Unlock()
	one.progress = now
}

func (one *pull) now() Progress {
	one.mutex.Lock()
	defer one.mutex.Unlock()
	return one.progress
}

func (w Wanted) key() key {
	hash, auth := sha256.New(), w.Auth
	for _, part := range []string{w.Image, w.Handler, auth.GetUsername(), auth.GetPassword(), auth.GetIdentityToken()} {
		fmt.Fprintf(hash, "%d:%s", len(part), part)
	}
	return key(hash.Sum(nil))
}
