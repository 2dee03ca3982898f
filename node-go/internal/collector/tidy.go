package collector

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"time"
)

var repositoryName = regexp.MustCompile(`^[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*)*$`)

// endUploads removes uploads that have broken off: the registry itself does that after hours.
func (r *round) endUploads(seen *scan) error {
	for _, one := range seen.repositories {
		folder := r.layout.uploads(one.name)
		entries, err := entriesOf(folder)
		if err != nil {
			return err
		}
		for _, entry := range entries {
			path := filepath.Join(folder, entry.Name())
			written, err := lastWritten(path)
			if err != nil {
				return err
			}
			if time.Since(written) < r.pace.Idle {
				continue
			}
			if err := os.RemoveAll(path); err != nil {
				return err
			}
			r.result.EndedUploads++
		}
	}
	return nil
}

func lastWritten(folder string) (last time.Time, err error) {
	err = filepath.WalkDir(folder, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil {
			return ignoring(err, fs.ErrNotExist)
		}
		about, err := entry.Info()
		if err != nil {
			return ignoring(err, fs.ErrNotExist)
		}
		if about.ModTime().After(last) {
			last = about.ModTime()
		}
		return nil
	})
	return last, err
}

// tidy removes links to what is gone, and folders that have had no content for long.
func (r *round) tidy(ctx context.Context, seen *scan) error {
	batches, err := r.batches()
	if err != nil {
		return err
	}
	trashed := map[hash]bool{}
	for _, one := range batches {
		for _, h := range one.blobs {
			trashed[h] = true
		}
	}
	for _, one := range seen.repositories {
		if err := ctx.Err(); err != nil {
			return err
		}
		for h, written := range one.layers {
			if _, there := seen.blobs[h]; there || trashed[h] || written.After(seen.began.Add(-r.pace.Young)) {
				continue
			}
			if _, err := os.Lstat(r.layout.blob(h)); !errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err := removeLink(r.layout.layer(one.name, h)); err != nil {
				return err
			}
		}
	}
	for _, top := range []string{r.layout.blobs(), r.layout.repositories()} {
		if err := prune(ctx, top, seen.began.Add(-leftovers), true); err != nil {
			return err
		}
	}
	return nil
}

// prune removes folders that are empty and old, from below. One that gets content just now is not empty.
func prune(ctx context.Context, folder string, before time.Time, top bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	entries, err := entriesOf(folder)
	if err != nil {
		return err
	}
	about, err := os.Lstat(folder)
	if err != nil {
		return ignoring(err, fs.ErrNotExist)
	}
	for _, entry := range entries {
		if entry.IsDir() {
			if err := prune(ctx, filepath.Join(folder, entry.Name()), before, false); err != nil {
				return err
			}
		}
	}
	if !top && about.ModTime().Before(before) {
		_ = os.Remove(folder)
	}
	return nil
}
