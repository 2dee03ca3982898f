package mirror

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// part is a blob of the upstream registry on its way: streamed, counted, and verified by its digest (which the library
// does as the last byte is read, before the private registry is told that the blob is whole).
type part struct {
	ctx    context.Context
	puller *remote.Puller
	from   name.Repository
	blob   v1.Descriptor
	sent   func(bytes int64)

	mu      sync.Mutex
	failure error
	counted int64
}

// Digest, DiffID, Size, MediaType, Compressed and Uncompressed are v1.Layer.
func (p *part) Digest() (v1.Hash, error)             { return p.blob.Digest, nil }
func (p *part) DiffID() (v1.Hash, error)             { return v1.Hash{}, fmt.Errorf("not known") }
func (p *part) Size() (int64, error)                 { return p.blob.Size, nil }
func (p *part) MediaType() (types.MediaType, error)  { return p.blob.MediaType, nil }
func (p *part) Uncompressed() (io.ReadCloser, error) { return nil, fmt.Errorf("not read") }

func (p *part) Compressed() (io.ReadCloser, error) {
	p.begin()
	layer, err := p.puller.Layer(p.ctx, p.from.Digest(p.blob.Digest.String()))
	if err != nil {
		return nil, p.failed(err)
	}
	body, err := layer.Compressed()
	if err != nil {
		return nil, p.failed(err)
	}
	return &counted{ReadCloser: body, part: p, left: p.blob.Size}, nil
}

// begin forgets what an earlier attempt has sent and how it failed.
func (p *part) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sent(-p.counted)
	p.counted, p.failure = 0, nil
}

func (p *part) failed(err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failure = err
	return err
}

// upstream returns why the last attempt failed, if it was for what the upstream registry did.
func (p *part) upstream() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failure
}

func (p *part) bytes() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.counted
}

type counted struct {
	io.ReadCloser
	part *part
	left int64
}

func (c *counted) Read(into []byte) (int, error) {
	n, err := c.ReadCloser.Read(into)
	c.left -= int64(n)
	c.part.mu.Lock()
	c.part.counted += int64(n)
	c.part.mu.Unlock()
	c.part.sent(int64(n))
	switch {
	case c.left < 0:
		return n, c.part.failed(&unreadable{fmt.Errorf("%s has more than its %d bytes", c.part.blob.Digest, c.part.blob.Size)})
	case err == io.EOF && c.left > 0:
		return n, c.part.failed(&unreadable{fmt.Errorf("%s ended %d bytes early: %w", c.part.blob.Digest, c.left, io.ErrUnexpectedEOF)})
	case err != nil && err != io.EOF && c.part.ctx.Err() == nil && !errors.Is(err, errStalled):
		return n, c.part.failed(&unreadable{fmt.Errorf("%s: %w", c.part.blob.Digest, err)})
	case err != nil && err != io.EOF:
		return n, c.part.failed(err)
	}
	return n, err
}
