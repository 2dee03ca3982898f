package mirror

import (
	"context"
	"errors"
	"io"
	"net"
	"syscall"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"rollbox.dev/node/internal/problem"
)

// Of a blob: what a broken connection has cost is sent once more, and then again.
var retries = remote.Backoff{Duration: 300 * time.Millisecond, Factor: 3, Jitter: 0.2, Steps: 3}

// endpoint is a registry as one copy speaks to it. A longer life would have the library remember every blob that it sent.
type endpoint struct {
	puller *remote.Puller
	pusher *remote.Pusher
}

func newEndpoint(options ...remote.Option) (*endpoint, error) {
	options = append(options,
		remote.WithUserAgent("rollbox-mirror"),
		remote.WithRetryBackoff(retries),
		remote.WithRetryPredicate(broke),
		// Statuses are RetryAfter's, or final.
		remote.WithRetryStatusCodes(),
	)
	puller, err := remote.NewPuller(options...)
	if err != nil {
		return nil, err
	}
	pusher, err := remote.NewPusher(options...)
	return &endpoint{puller, pusher}, err
}

func (c *Copier) target(ctx context.Context) (*endpoint, error) {
	return newEndpoint(remote.WithContext(ctx), remote.WithTransport(c.Private), remote.WithAuth(c.Credentials))
}

func (c *Copier) source(ctx context.Context, wish request) (*endpoint, error) {
	made, err := newEndpoint(remote.WithContext(ctx), remote.WithTransport(c.Upstream), remote.WithAuth(wish.auth()))
	if err != nil {
		return nil, problem.New(problem.Internal, "%w", err)
	}
	return made, nil
}

// manifests reads what is to be copied: one manifest for each architecture that has one.
func (e *endpoint) manifests(ctx context.Context, wish request) ([]manifest, error) {
	named, err := e.manifest(ctx, wish.source)
	if err != nil {
		return nil, err
	}
	if !named.MediaType.IsIndex() {
		one, err := read(named.Manifest, named.MediaType, nil)
		return []manifest{one}, err
	}
	chosen, err := choose(named.Manifest, wish.architectures)
	if err != nil {
		return nil, err
	}
	var found []manifest
	for _, entry := range chosen {
		got, err := e.manifest(ctx, wish.source.Context().Digest(entry.Digest.String()))
		if err != nil {
			return nil, err
		}
		one, err := read(got.Manifest, got.MediaType, entry.Platform)
		if err != nil {
			return nil, err
		}
		found = append(found, one)
	}
	return found, nil
}

func (e *endpoint) manifest(ctx context.Context, at name.Digest) (*remote.Descriptor, error) {
	got, err := e.puller.Get(ctx, at)
	if err != nil && !broke(err) && !answeredOrUnreachable(err) {
		return nil, &unreadable{err}
	}
	return got, err
}

func (e *endpoint) image(ctx context.Context, wish request, one manifest) (v1.Image, error) {
	got, err := e.manifest(ctx, wish.source.Context().Digest(one.digest.String()))
	if err != nil {
		return nil, err
	}
	return got.Image()
}

// broke reports whether an error is a connection's that broke off, so that the same again may work.
func broke(err error) bool {
	if errors.Is(err, errStalled) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	return errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) || errors.Is(err, syscall.EPIPE) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, net.ErrClosed)
}
