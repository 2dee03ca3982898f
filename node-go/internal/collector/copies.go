package collector

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"rollbox.dev/node/internal/problem"
)

// Use notes that a copy is used now, and reports whether it is there. One of which something is missing is removed: so
// whoever asks copies it again.
func (c *Collector) Use(name, digest string) (bool, error) {
	h, err := copyNamed(name, digest)
	if err != nil {
		return false, err
	}
	c.copies.Lock()
	defer c.copies.Unlock()
	link := c.layout.revision(name, h)
	now := time.Now()
	if err := os.Chtimes(link, now, now); err != nil {
		return false, ignoring(err, fs.ErrNotExist)
	}
	whole, err := c.whole(name, h, map[hash]bool{})
	if err != nil || whole {
		return whole, err
	}
	c.log.Error("a copy is not whole, it is removed", "repository", name, "digest", digest)
	return false, c.remove(name, h, now)
}

// whole reports whether all that a manifest names is there, manifests by their links in the repository.
func (c *Collector) whole(name string, h hash, looked map[hash]bool) (bool, error) {
	if looked[h] {
		return true, nil
	}
	looked[h] = true
	if _, err := os.Lstat(c.layout.revision(name, h)); err != nil {
		return false, ignoring(err, fs.ErrNotExist)
	}
	if there, err := c.has(h); err != nil || !there {
		return false, err
	}
	text, err := readFirst(maxManifest, c.layout.blob(h))
	if err != nil {
		return false, ignoring(err, fs.ErrNotExist)
	}
	names, err := namedIn(text)
	if err != nil {
		return false, nil
	}
	for _, one := range names.blobs {
		if there, err := c.has(one); err != nil || !there {
			return false, err
		}
	}
	for _, one := range names.manifests {
		if whole, err := c.whole(name, one, looked); err != nil || !whole {
			return false, err
		}
	}
	return true, nil
}

// has reports whether a blob is there; from the trash it is renamed back at once.
func (c *Collector) has(h hash) (bool, error) {
	_, err := os.Lstat(c.layout.blob(h))
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return err == nil, err
	}
	batches, err := c.batches()
	for _, one := range batches {
		if slices.Contains(one.blobs, h) {
			if err := c.back(filepath.Join(one.folder, h.hex()), h); err != nil {
				return false, err
			}
		}
	}
	if err != nil {
		return false, err
	}
	_, err = os.Lstat(c.layout.blob(h))
	return err == nil, ignoring(err, fs.ErrNotExist)
}

// Remove takes a copy's names, unless it was used after a moment; whether there was one. Its bytes go with a collection.
func (c *Collector) Remove(name, digest string, unusedSince time.Time) (bool, error) {
	h, err := copyNamed(name, digest)
	if err != nil {
		return false, err
	}
	c.copies.Lock()
	defer c.copies.Unlock()
	about, err := os.Lstat(c.layout.revision(name, h))
	if errors.Is(err, fs.ErrNotExist) {
		return false, c.remove(name, h, unusedSince)
	}
	if err != nil {
		return false, err
	}
	if about.ModTime().UnixMilli() > unusedSince.UnixMilli() {
		return false, problem.New(problem.Conflict, "%s@%s was used meanwhile", name, digest)
	}
	return true, c.remove(name, h, unusedSince)
}

// remove takes the names of a copy, what tags of users meant among them, and then its manifest's link, unless that was
// written by a push meanwhile. What an index names beside it goes with the next collection. One that it is killed in the
// middle of is copied again, or removed again. Cost: the tags of this copy alone, once its registry has been listed.
func (c *Collector) remove(name string, h hash, unusedSince time.Time) error {
	s := &scan{layout: c.layout, known: map[hash]named{}}
	if c.leads[name] == nil {
		tags, err := tagsOf(c.layout.tags(name))
		if err != nil {
			return err
		}
		found, err := s.leads(&repository{name: name, tags: tags})
		if err != nil {
			return err
		}
		if c.leads == nil {
			c.leads = map[string]map[hash][]string{}
		}
		c.leads[name] = found
	}
	for _, tag := range c.leads[name][h] {
		// What it leads to by now.
		now, err := tagOf(c.layout.tags(name), tag)
		if err != nil {
			return err
		}
		if one, err := s.leads(&repository{tags: now}); err != nil || one[h] == nil {
			if err != nil {
				return err
			}
			continue
		}
		if err := c.removeTag(name, tag); err != nil {
			return err
		}
		if isNote(tag) {
			if err := c.removeOld(name, now[tag], unusedSince); err != nil {
				return err
			}
		}
	}
	delete(c.leads[name], h)
	c.step()
	return c.removeOld(name, h, unusedSince)
}

// removeOld removes the link of a manifest, unless it was written after a moment.
func (c *Collector) removeOld(name string, h hash, unusedSince time.Time) error {
	link := c.layout.revision(name, h)
	about, err := os.Lstat(link)
	if err != nil {
		return ignoring(err, fs.ErrNotExist)
	}
	if about.ModTime().UnixMilli() > unusedSince.UnixMilli() {
		return nil
	}
	return removeLink(link)
}

func (c *Collector) removeTag(name, tag string) error {
	folder := filepath.Join(c.layout.tags(name), tag)
	if err := os.Remove(filepath.Join(folder, "current/link")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	// Not whole, if the same tag is pushed just now: then it is there again.
	_ = os.Remove(filepath.Join(folder, "current"))
	if _, err := os.Lstat(filepath.Join(folder, "current")); errors.Is(err, fs.ErrNotExist) {
		_ = os.RemoveAll(folder)
	}
	return nil
}

func removeLink(path string) error {
	if err := os.Remove(path); err != nil {
		return ignoring(err, fs.ErrNotExist)
	}
	_ = os.Remove(filepath.Dir(path))
	return nil
}

// dropLeftRevisions removes manifests of copies that no tag leads to: what an index had, of a removal that was killed, or
// a copy that was never finished; and notes of what is gone.
func (r *round) dropLeftRevisions(ctx context.Context, seen *scan) error {
	for _, one := range seen.repositories {
		if err := ctx.Err(); err != nil {
			return err
		}
		if !isCopy(one.name) {
			continue
		}
		if err := r.dropLeft(seen, one); err != nil {
			return err
		}
	}
	return nil
}

func (r *round) dropLeft(seen *scan, one *repository) error {
	stays := newReached()
	for tag, h := range one.tags {
		names, _, err := seen.manifest(h)
		if err != nil {
			return err
		}
		if isNote(tag) && len(names.manifests) == 1 {
			if _, there := one.revisions[names.manifests[0]]; !there && one.revisions[h].Before(seen.began.Add(-r.pace.Young)) {
				if err := r.dropNote(one.name, tag, h); err != nil {
					return err
				}
				continue
			}
		}
		if err := seen.reach(h, stays); err != nil {
			return err
		}
	}
	for h := range one.revisions {
		if stays.manifests[h] {
			continue
		}
		r.step()
		r.copies.Lock()
		err := r.removeOld(one.name, h, seen.began.Add(-r.pace.Young))
		r.copies.Unlock()
		if err != nil {
			return err
		}
		if _, err := os.Lstat(r.layout.revision(one.name, h)); err != nil {
			delete(one.revisions, h)
		}
	}
	return nil
}

func (r *round) dropNote(name, tag string, h hash) error {
	r.copies.Lock()
	defer r.copies.Unlock()
	now, err := tagOf(r.layout.tags(name), tag)
	if err != nil || now[tag] != h {
		return err
	}
	return r.removeTag(name, tag)
}

func copyNamed(name, digest string) (hash, error) {
	h, ok := parseHash(digest)
	if !ok {
		return h, problem.New(problem.InvalidArgument, "digest %.100q is none", digest)
	}
	// Of the forms that registries take: no `..`, no absolute path.
	if !isCopy(name) || !repositoryName.MatchString(name) {
		return h, problem.New(problem.InvalidArgument, "%.200q is no repository of copies", name)
	}
	return h, nil
}
