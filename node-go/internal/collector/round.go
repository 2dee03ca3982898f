package collector

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// round is one collection.
type round struct {
	*Collector
	pace   Pace
	result Result
}

func (r *round) run(ctx context.Context) error {
	seen, err := r.scan(ctx)
	if err != nil {
		return err
	}
	if err := r.endUploads(seen); err != nil {
		return err
	}
	if err := r.dropLeftRevisions(ctx, seen); err != nil {
		return err
	}
	// What an earlier one has left.
	if err := r.decide(ctx, seen); err != nil {
		return err
	}
	moved, err := r.discard(ctx, seen)
	if moved > 0 {
		// What was pushed since the scan is not missed for long, also where nobody waits for this one any more.
		err = errors.Join(err, r.restore(context.WithoutCancel(ctx)))
	}
	if err != nil {
		return err
	}
	if moved > 0 {
		if err := r.settle(ctx, r.pace.Settle); err != nil {
			return err
		}
		if seen, err = r.scan(ctx); err == nil {
			err = r.decide(ctx, seen)
		}
		if err != nil {
			return err
		}
	}
	r.result.Blobs = len(seen.blobs)
	r.forget(seen)
	return r.tidy(ctx, seen)
}

func sleep(ctx context.Context, pause time.Duration) error {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// discard renames what no image has into the trash; how many blobs.
func (r *round) discard(ctx context.Context, seen *scan) (int, error) {
	r.step()
	needed, err := seen.needed(ctx)
	if err != nil {
		return 0, err
	}
	before := seen.began.Add(-r.pace.Young)
	fresh := seen.fresh(before)
	var batch string
	var made time.Time
	moved := 0
	for h, one := range seen.blobs {
		if needed[h] || fresh[h] || one.written.After(before) {
			continue
		}
		if err := ctx.Err(); err != nil {
			return moved, err
		}
		if time.Since(made) > batchFor {
			made = time.Now()
			if batch, err = r.newBatch(); err != nil {
				return moved, err
			}
		}
		r.step()
		err := os.Rename(r.layout.blob(h), filepath.Join(batch, h.hex()))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return moved, err
		}
		moved++
	}
	return moved, nil
}

// restore renames back what is needed by now; the rest stays in the trash.
func (r *round) restore(ctx context.Context) error {
	batches, err := r.batches()
	if err != nil || len(batches) == 0 {
		return err
	}
	seen, err := r.scan(ctx)
	if err != nil {
		return err
	}
	return r.judge(ctx, seen, func(batch, hash, string) error { return nil })
}

// decide renames back what is needed by now, and deletes what was in the trash for long enough.
func (r *round) decide(ctx context.Context, seen *scan) error {
	return r.judge(ctx, seen, func(from batch, h hash, path string) error {
		// The scan began when everybody who had seen the file was done.
		if seen.began.Before(from.moved.Add(r.pace.Settle)) {
			return nil
		}
		about, err := os.Lstat(path)
		if err != nil {
			return ignoring(err, fs.ErrNotExist)
		}
		if err := os.Remove(path); err != nil {
			return ignoring(err, fs.ErrNotExist) // renamed back for one who uses it
		}
		r.result.FreedBytes += about.Size()
		r.result.FreedBlobs++
		return nil
	})
}

func (r *round) judge(ctx context.Context, seen *scan, otherwise func(batch, hash, string) error) error {
	batches, err := r.batches()
	if err != nil || len(batches) == 0 {
		return err
	}
	needed, err := seen.needed(ctx)
	if err != nil {
		return err
	}
	for _, from := range batches {
		// When it was moved, no link to it was as young as this.
		fresh := seen.fresh(from.moved.Add(-r.pace.Young))
		for _, h := range from.blobs {
			if err := ctx.Err(); err != nil {
				return err
			}
			r.step()
			path := filepath.Join(from.folder, h.hex())
			if !needed[h] && !fresh[h] {
				if err := otherwise(from, h, path); err != nil {
					return err
				}
				continue
			}
			if err := r.back(path, h); err != nil {
				return err
			}
			r.result.KeptBlobs++
		}
		// With what is left in it, it stays.
		if err := os.Remove(from.folder); err != nil {
			if err := ignoring(err, fs.ErrNotExist, syscall.ENOTEMPTY, syscall.EEXIST); err != nil {
				return err
			}
		}
	}
	return nil
}

// back renames a file out of the trash. Over one that was pushed meanwhile too: they have one digest.
func (c *Collector) back(path string, h hash) error {
	if err := os.MkdirAll(filepath.Dir(c.layout.blob(h)), 0o755); err != nil {
		return err
	}
	return ignoring(os.Rename(path, c.layout.blob(h)), fs.ErrNotExist)
}

// forget drops what is known of manifests that are gone.
func (r *round) forget(seen *scan) {
	for h := range r.known {
		if _, there := seen.blobs[h]; !there {
			delete(r.known, h)
		}
	}
}

// ignoring returns the error unless it is one of these.
func ignoring(err error, these ...error) error {
	for _, one := range these {
		if errors.Is(err, one) {
			return nil
		}
	}
	return err
}
