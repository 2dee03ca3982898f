// Package commit makes images of running sandboxes.
package commit

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"syscall"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/stream"
	"golang.org/x/sync/semaphore"

	"rollbox.dev/node/internal/layer"
	"rollbox.dev/node/internal/pods"
	"rollbox.dev/node/internal/problem"
	"rollbox.dev/node/internal/runsc"
	"rollbox.dev/node/internal/wire"
)

// Reading is bounded by the node's disks and processors, which sandboxes need too.
const mostAtOnce = 2

// Small files are written together.
const bufferBytes = 1 << 20

// Commits makes the images of one node.
type Commits struct {
	pods    *pods.Finder
	kernels *runsc.Kernels
	spool   *Spool
	bound   layer.Bound
	log     *slog.Logger
	places  *semaphore.Weighted
	first   chan struct{}

	mu       sync.Mutex
	underWay map[string]bool
}

// New returns commits of the sandboxes that are found, whose layers wait in a spool; what is known of their files takes no
// more than so many bytes of memory. None begins before LetGo has returned.
func New(found *pods.Finder, kernels *runsc.Kernels, spool *Spool, memory int64, log *slog.Logger) *Commits {
	return &Commits{
		pods: found, kernels: kernels, spool: spool, bound: layer.Within(memory, mostAtOnce), log: log, places: semaphore.NewWeighted(mostAtOnce),
		first: make(chan struct{}), underWay: map[string]bool{},
	}
}

// Progress is how far a commit is with its layer.
type Progress struct{ Done, Total int64 }

// Commit does what a request says, which is checked, and tells how far it is until it returns.
func (c *Commits) Commit(ctx context.Context, asked *wire.CommitRequest, told func(Progress)) (*wire.Committed, error) {
	end, err := c.begin(asked.GetSandboxId())
	if err != nil {
		return nil, err
	}
	defer end()
	select {
	case <-c.first:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if err := c.places.Acquire(ctx, 1); err != nil {
		return nil, context.Cause(ctx)
	}
	defer c.places.Release(1)
	container, err := c.pods.Container(ctx, asked.GetSandboxId(), asked.GetContainer())
	if err != nil {
		return nil, err
	}
	registry, err := open(ctx, asked)
	if err != nil {
		return nil, err
	}
	defer registry.idle()
	base, top, err := registry.from(ctx, asked.GetSquash())
	if err != nil {
		return nil, err
	}
	below, err := c.below(ctx, registry, top)
	if err != nil {
		return nil, err
	}
	defer below.close()
	file, err := c.spool.open()
	if err != nil {
		return nil, err
	}
	defer file.close()
	one := &reading{asked: asked, bound: c.bound, container: container, kernel: c.kernels.Of(container.Pod), file: file, told: told}
	if err := one.run(ctx); err != nil {
		return nil, err
	}
	// Its processes go on; the registry may take as long as the caller waits.
	base, layer, err := one.send(ctx, registry, base, below)
	if err != nil {
		return nil, err
	}
	digest, err := registry.name(ctx, base, layer)
	if err != nil {
		return nil, err
	}
	size, err := layer.Size()
	var skipped []string
	for _, volume := range container.Volumes {
		skipped = append(skipped, volume+": a volume that the image declares")
	}
	return &wire.Committed{
		Digest: digest, SizeBytes: uint64(size), Skipped: append(skipped, one.report.Skipped...), SkippedMore: one.report.More,
		StillUs: uint64(one.still.Microseconds()),
	}, err
}

// begin refuses a second commit of one sandbox.
func (c *Commits) begin(sandbox string) (func(), error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.underWay[sandbox] {
		return nil, problem.New(problem.Conflict, "%s is being committed already", sandbox).With("sandbox_id", sandbox)
	}
	c.underWay[sandbox] = true
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.underWay, sandbox)
	}, nil
}

// reading is the part of a commit while which a sandbox stands still.
type reading struct {
	asked     *wire.CommitRequest
	bound     layer.Bound
	container *pods.Container
	kernel    *runsc.Kernel
	file      *spooled
	told      func(Progress)

	report *layer.Report
	still  time.Duration
}

var errLate = errors.New("it stood still for too long")

func (r *reading) run(ctx context.Context) error {
	limit := time.Duration(r.asked.GetStillMs()) * time.Millisecond
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errLate)
	defer cancel()
	began := time.Now()
	err := r.kernel.Still(ctx, func(ctx context.Context) error {
		began = time.Now()
		return r.read(ctx)
	})
	r.still = time.Since(began)
	if err != nil && errors.Is(context.Cause(ctx), errLate) {
		return r.refused(problem.PayloadTooLarge, "it would stand still for more than %s: it has changed too much", limit)
	}
	return r.judge(err)
}

// read puts the layer into the spool: nothing that a registry does makes a sandbox stand still for longer.
func (r *reading) read(ctx context.Context) error {
	found, err := r.kernel.List(ctx, r.asked.GetContainer(), r.bound)
	if err != nil {
		return err
	}
	if err := r.file.reserve(min(total(found), int64(r.asked.GetMaxBytes()))); err != nil {
		return err
	}
	content, err := r.kernel.Reader(ctx, r.container.ID)
	if err != nil {
		return err
	}
	defer content.Close()
	counted := &counter{to: r.file, progress: Progress{Total: total(found)}, told: r.told}
	buffered := bufio.NewWriterSize(counted, bufferBytes)
	if r.report, err = layer.Write(ctx, buffered, found, r.container.Mounts, int64(r.asked.GetMaxBytes()), content); err != nil {
		return err
	}
	return buffered.Flush()
}

// send puts the layer into the registry, with the one below it where these are to be one, and returns what it lies on.
func (r *reading) send(ctx context.Context, to *registry, base v1.Image, below *lower) (v1.Image, *stream.Layer, error) {
	if below == nil {
		made, err := to.send(ctx, base, io.NopCloser(r.file.all()))
		return base, made, to.failed(err)
	}
	above, err := layer.Index(r.file.all(), r.file.file, r.bound)
	if err != nil {
		return nil, nil, r.judge(err)
	}
	squashed, err := layer.Squash(below.layer, above, below.folders, r.bound)
	if err != nil {
		return nil, nil, r.judge(err)
	}
	most := int64(r.asked.GetMaxBytes())
	if squashed.Size() > most {
		return nil, nil, r.judge(&layer.TooLargeError{Path: "/", Max: most})
	}
	if len(squashed.Folders()) > 0 {
		if base, err = to.with(base, squashed.WriteFolders); err != nil {
			return nil, nil, r.judge(err)
		}
	}
	made, err := r.sendOne(ctx, to, base, squashed, most)
	return base, made, err
}

func (r *reading) sendOne(ctx context.Context, to *registry, base v1.Image, squashed *layer.Squashed, most int64) (*stream.Layer, error) {
	from, into := io.Pipe()
	var failed error
	var writing sync.WaitGroup
	writing.Go(func() {
		failed = squashed.Write(ctx, into, most)
		_ = into.CloseWithError(cmp.Or(failed, io.EOF))
	})
	made, err := to.send(ctx, base, from)
	_ = from.CloseWithError(errClosed)
	writing.Wait()
	if failed != nil && (err == nil || !errors.Is(failed, errClosed)) {
		return nil, r.judge(failed)
	}
	return made, to.failed(err)
}

// errClosed is what the writer hears when the registry takes no more.
var errClosed = errors.New("the registry takes no more")

// lower is the layer right below the new one, which becomes a part of it.
type lower struct {
	file           *spooled
	layer, folders *layer.Stored
}

func (l *lower) close() {
	if l != nil {
		l.file.close()
	}
}

// below fetches a layer before the sandbox stands still; nil: none was asked for.
func (c *Commits) below(ctx context.Context, from *registry, top tops) (*lower, error) {
	if top.layer == nil {
		return nil, nil
	}
	file, err := c.spool.open()
	if err != nil {
		return nil, err
	}
	made := &lower{file: file}
	if made.layer, err = indexed(ctx, top.layer, file, file.file, c.bound); err == nil && top.folders != nil {
		made.folders, err = indexed(ctx, top.folders, io.Discard, nil, c.bound)
	}
	switch {
	case err == nil:
		return made, nil
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case errors.Is(err, layer.ErrTooMany):
		err = problem.New(problem.PayloadTooLarge, "the layer below has more than %d files, or longer names than so many may have", c.bound.Entries)
	default:
		err = from.failed(err)
	}
	file.close()
	return nil, err
}

// indexed reads a layer of the registry, into a file.
func indexed(ctx context.Context, of v1.Layer, into io.Writer, file io.ReaderAt, bound layer.Bound) (*layer.Stored, error) {
	content, err := of.Uncompressed()
	if err != nil {
		return nil, err
	}
	defer func() { _ = content.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = content.Close() })
	defer stop()
	return layer.Index(io.TeeReader(content, into), file, bound)
}

func total(found []layer.Entry) (bytes int64) {
	for at := range found {
		bytes += found[at].Size
	}
	return bytes
}

// judge returns the problem that a failure of the kernel, or of its file system, is.
func (r *reading) judge(err error) error {
	var known *problem.Problem
	var large *layer.TooLargeError
	var refused *runsc.RefusedError
	switch {
	case err == nil, errors.As(err, &known), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.As(err, &large):
		return r.refused(problem.PayloadTooLarge, "%w", err)
	case errors.Is(err, layer.ErrTooMany):
		return r.refused(problem.PayloadTooLarge, "it has changed more than %d files, or some with longer names than so many may have", r.bound.Entries)
	case errors.Is(err, runsc.ErrStill):
		return r.refused(problem.Conflict, "%w", err)
	case errors.Is(err, runsc.ErrUnknown), errors.Is(err, layer.ErrForm):
		return r.refused(problem.Unsupported, "%w", err).With("value", "the version of runsc that rollbox is tested with")
	case errors.As(err, &refused) && refused.Words == "no checkpointable filesystems":
		return r.refused(problem.Unsupported, "its kernel keeps its files in memory, and not in a file of their own").With("value", "overlay2 = root:self, which is runsc's default")
	case errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, io.EOF),
		errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return r.refused(problem.SandboxLost, "its kernel has ended, or cannot be reached: %w", err)
	}
	return r.refused(problem.Internal, "%w", err)
}

func (r *reading) refused(code problem.Code, format string, values ...any) *problem.Problem {
	id := r.asked.GetSandboxId()
	return problem.New(code, "no image of "+id+" was made: %w", fmt.Errorf(format, values...)).With("sandbox_id", id)
}

// counter tells what passes.
type counter struct {
	to       io.Writer
	progress Progress
	told     func(Progress)
}

func (c *counter) Write(data []byte) (int, error) {
	n, err := c.to.Write(data)
	c.progress.Done += int64(n)
	c.told(c.progress)
	return n, err
}
