package mirror

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"rollbox.dev/node/internal/distribution"
	"rollbox.dev/node/internal/wire"
)

// So often a part of an image may have been collected while it was sent.
const mostCollected = 3

// Options are what a Copier is given.
type Options struct {
	Registry    string // host and port of the private registry
	Credentials authn.Authenticator
	Private     http.RoundTripper // asks the private registry
	Upstream    http.RoundTripper // asks all others
	// Those that are asked by http, as host or host:port.
	PlainRegistries []string
	CopiesAtOnce,
	LayersAtOnce int // of one copy
	MaxImageBytes int64
	Forms         map[wire.ImageForm]Converter
	Folder        string // where converters work
	Scratch       int64  // the room in it
	Metrics       *Metrics
}

// Copier copies images into the private registry.
type Copier struct {
	Options
	places *places
	// Conversions take memory and both cores, one at a time.
	conversions *semaphore.Weighted
	flights     flights
	known       *Known
}

// NewCopier returns a copier.
func NewCopier(options Options) *Copier {
	return &Copier{
		Options:     options,
		places:      newPlaces(options.CopiesAtOnce),
		conversions: semaphore.NewWeighted(1),
		flights:     flights{by: map[string]*flight{}},
		known:       NewKnown(mostKnown),
	}
}

// Copy copies an image unless it is there, and tells progress meanwhile.
func (c *Copier) Copy(ctx context.Context, asked *wire.CopyRequest, tell func(*wire.CopyProgress) error) (*wire.Copied, error) {
	wish, err := checked(asked, c.Options)
	if err != nil {
		return nil, err
	}
	return c.joined(ctx, wish, tell)
}

// joined waits for a copy, which it begins unless it is under way.
func (c *Copier) joined(ctx context.Context, wish request, tell func(*wire.CopyProgress) error) (*wire.Copied, error) {
	for {
		joined := c.flights.join(wish, c.run)
		result, err := joined.follow(ctx, tell)
		c.flights.leave(joined)
		if err != nil && ctx.Err() == nil && joined.request.credentials != wish.credentials && denied(err) {
			continue // what was refused were another caller's credentials
		}
		if err == nil && wish.form == wire.ImageForm_PLAIN {
			err = c.noteOf(ctx, wish, result)
		}
		return result, err
	}
}

// Wait returns when no copy is under way.
func (c *Copier) Wait() { c.flights.runs.Wait() }

func (c *Copier) run(ctx context.Context, f *flight) {
	f.result, f.err = c.copied(ctx, f)
	c.Metrics.over(f.result, f.err, ctx.Err() != nil)
}

func (c *Copier) copied(ctx context.Context, f *flight) (*wire.Copied, error) {
	target, err := c.target(ctx)
	if err != nil {
		return nil, fromRegistry(err, c.Registry)
	}
	there, err := target.puller.Head(ctx, f.request.target.Tag(f.request.marker()))
	if err == nil && f.request.form == wire.ImageForm_PLAIN {
		err = c.note(ctx, target, f.request, there.Digest)
	}
	if err == nil {
		return c.withArchitectures(ctx, f, target, &wire.Copied{Digest: there.Digest.String(), There: true})
	}
	if !absent(err) {
		return nil, fromRegistry(err, c.Registry)
	}
	if convert := c.Forms[f.request.form]; convert != nil {
		made, err := c.converted(ctx, f, target, convert)
		if err != nil {
			return nil, err
		}
		return c.withArchitectures(ctx, f, target, made)
	}
	// Where there was a copy once, the registry may have been emptied since.
	c.known.forget(notedIn(f.request))
	place, leave, err := c.places.take(ctx, f.request.source.RegistryStr())
	if err != nil {
		return nil, err
	}
	defer leave()
	ctx = withPauses(ctx, &pauses{
		begin: func(until time.Time) { c.paused(f, until); place.pause() },
		end:   func(ctx context.Context) error { c.paused(f, time.Time{}); return place.resume(ctx) },
	})
	f.change(func(p *progress) { p.phase = wire.CopyProgress_COPYING })
	return c.copyNow(ctx, f, target)
}

func (c *Copier) copyNow(ctx context.Context, f *flight, target *endpoint) (*wire.Copied, error) {
	source, err := c.source(ctx, f.request)
	if err != nil {
		return nil, err
	}
	manifests, err := source.manifests(ctx, f.request)
	if err != nil {
		return nil, fromUpstream(err, f.request.source.RegistryStr())
	}
	var size int64
	for _, one := range manifests {
		size += one.size()
	}
	if c.MaxImageBytes > 0 && size > c.MaxImageBytes {
		return nil, refusal("it has %d bytes; the mirror takes %d", size, c.MaxImageBytes)
	}
	// Now that it is known to be one that would be copied: of this size, from a registry that may be asked.
	if f.request.noRoom {
		return nil, full(c.Registry, "it has no room for more")
	}
	var sent int64
	var final manifest
	target, err = c.again(ctx, target, func(target *endpoint) (err error) {
		if sent, err = c.sendParts(ctx, f, source, manifests, target); err != nil {
			return err
		}
		final, err = c.sendManifests(ctx, f.request, manifests, target)
		return err
	})
	if err != nil {
		return nil, fromRegistry(err, c.Registry)
	}
	if err := c.note(ctx, target, f.request, final.digest); err != nil {
		return nil, err
	}
	return &wire.Copied{Digest: final.digest.String(), SentBytes: uint64(sent), SizeBytes: uint64(size)}, nil
}

// again sends an image, and once more with nothing remembered where the registry had collected a part of it meanwhile. The
// endpoint that it returns is the one that has sent all.
func (c *Copier) again(ctx context.Context, target *endpoint, send func(*endpoint) error) (*endpoint, error) {
	err := send(target)
	for range mostCollected {
		if !distribution.Collected(err) {
			break
		}
		if target, err = c.target(ctx); err != nil {
			return nil, err
		}
		err = send(target)
	}
	return target, err
}

// sendParts sends the content of all manifests that is not there yet; how many bytes that were.
func (c *Copier) sendParts(ctx context.Context, f *flight, source *endpoint, manifests []manifest, target *endpoint) (int64, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(c.LayersAtOnce)
	parts := distinct(manifests)
	f.change(func(p *progress) {
		p.layers = len(parts)
		for _, one := range parts {
			p.totalBytes += one.Size
		}
	})
	var mu sync.Mutex
	var sent int64
	for _, blob := range parts {
		one := &part{ctx: ctx, puller: source.puller, from: f.request.source.Context(), blob: blob, sent: func(bytes int64) {
			f.change(func(p *progress) { p.doneBytes += bytes })
		}}
		group.Go(func() error {
			if err := c.sendPart(ctx, f.request, one, target); err != nil {
				return err
			}
			f.change(func(p *progress) { p.doneLayers++ })
			mu.Lock()
			defer mu.Unlock()
			sent += one.bytes()
			return nil
		})
	}
	return sent, group.Wait()
}

func (c *Copier) sendPart(ctx context.Context, wish request, one *part, target *endpoint) error {
	host := wish.source.RegistryStr()
	var layer v1.Layer = one
	if from := c.known.find(host, one.blob.Digest.String()); from != "" && from != wish.target.RepositoryStr() {
		layer = &remote.MountableLayer{Layer: one, Reference: wish.target.Registry.Repo(from).Digest(one.blob.Digest.String())}
	}
	if err := target.pusher.Upload(ctx, wish.target, layer); err != nil {
		if failure := one.upstream(); failure != nil {
			return fromUpstream(failure, host)
		}
		return fromRegistry(err, c.Registry)
	}
	c.known.add(host, one.blob.Digest.String(), wish.target.RepositoryStr())
	return nil
}

// sendManifests makes the copy whole: until its marker is there, nothing of it is offered.
func (c *Copier) sendManifests(ctx context.Context, wish request, manifests []manifest, target *endpoint) (manifest, error) {
	final := manifests[0]
	if len(manifests) > 1 {
		for _, one := range manifests {
			if err := target.pusher.Put(ctx, wish.target.Digest(one.digest.String()), one); err != nil {
				return manifest{}, err
			}
		}
		index, err := indexOf(manifests, nil)
		if err != nil {
			return manifest{}, err
		}
		final = index
	}
	return final, target.pusher.Put(ctx, wish.target.Tag(wish.marker()), final)
}

func distinct(manifests []manifest) []v1.Descriptor {
	seen := map[v1.Hash]bool{}
	var parts []v1.Descriptor
	for _, one := range manifests {
		for _, blob := range one.parts {
			if !seen[blob.Digest] {
				seen[blob.Digest] = true
				parts = append(parts, blob)
			}
		}
	}
	return parts
}

// Find returns what a reference of the private registry stands for.
func (c *Copier) Find(ctx context.Context, asked *wire.FindRequest) (*wire.FindReply, error) {
	where, err := repository(c.Registry, asked.GetRepository())
	if err != nil {
		return nil, err
	}
	target, err := c.target(ctx)
	if err != nil {
		return nil, fromRegistry(err, c.Registry)
	}
	if asked.GetForm() == wire.ImageForm_ESTARGZ {
		return c.foundConverted(ctx, target, asked)
	}
	return c.found(ctx, target, where, asked.GetReference())
}

func (c *Copier) paused(f *flight, until time.Time) {
	f.change(func(p *progress) { p.pausedUntil = until })
	if !until.IsZero() {
		c.Metrics.paused.Inc()
	}
}
