package collector

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// repository is one of the registry, as a scan has seen it. Moments are those at which something was written last.
type repository struct {
	name      string
	tags      map[string]hash
	revisions map[hash]time.Time
	layers    map[hash]time.Time
}

type blob struct {
	size    int64
	written time.Time
}

// scan is what the registry has, read while others write.
type scan struct {
	layout       layout
	began        time.Time
	blobs        map[hash]blob
	repositories []*repository
	// Files in the trash by digest.
	trashed map[hash][]string
	// What manifests name, for all scans: content has one digest.
	known map[hash]named
}

// Scan reads everything. Cost: an lstat for every blob and link, a read for every tag and for every new manifest.
func (c *Collector) scan(ctx context.Context) (*scan, error) {
	s := &scan{layout: c.layout, began: time.Now(), blobs: map[hash]blob{}, known: c.known, trashed: map[hash][]string{}}
	// The trash first: what is renamed back meanwhile is seen twice, and never not at all.
	batches, err := c.batches()
	if err != nil {
		return nil, err
	}
	for _, one := range batches {
		for _, h := range one.blobs {
			s.trashed[h] = append(s.trashed[h], filepath.Join(one.folder, h.hex()))
		}
	}
	c.step()
	// Repositories before blobs: what is pushed meanwhile has its blobs first.
	if err := s.walk(ctx, "", s.readRepository); err != nil {
		return nil, err
	}
	c.step()
	if err := s.readBlobs(ctx); err != nil {
		return nil, err
	}
	if c.capacity == 0 {
		c.usage.set(s.size())
	}
	return s, nil
}

// size is what all blobs have.
func (s *scan) size() (total int64) {
	for _, one := range s.blobs {
		total += one.size
	}
	return total
}

// walk visits all repositories below a folder.
func (s *scan) walk(ctx context.Context, name string, visit func(string) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	entries, err := entriesOf(s.layout.repository(name))
	if err != nil {
		return err
	}
	is := false
	for _, entry := range entries {
		switch {
		case !entry.IsDir():
		case strings.HasPrefix(entry.Name(), "_"):
			is = true
		default:
			if err := s.walk(ctx, filepath.Join(name, entry.Name()), visit); err != nil {
				return err
			}
		}
	}
	if !is {
		return nil
	}
	return visit(name)
}

func (s *scan) readRepository(name string) (err error) {
	found := &repository{name: name}
	// Tags first: what a tag stands for is there before it.
	if found.tags, err = tagsOf(s.layout.tags(name)); err != nil {
		return err
	}
	at := s.layout.repository(name)
	if found.revisions, err = linksOf(filepath.Join(at, "_manifests/revisions/sha256")); err != nil {
		return err
	}
	if found.layers, err = linksOf(filepath.Join(at, "_layers/sha256")); err != nil {
		return err
	}
	s.repositories = append(s.repositories, found)
	return nil
}

func tagsOf(folder string) (map[string]hash, error) {
	entries, err := entriesOf(folder)
	if err != nil {
		return nil, err
	}
	found := map[string]hash{}
	for _, entry := range entries {
		one, err := tagOf(folder, entry.Name())
		if err != nil {
			return nil, err
		}
		maps.Copy(found, one)
	}
	return found, nil
}

// tagOf returns what one tag stands for; nothing, if it is not there.
func tagOf(folder, tag string) (map[string]hash, error) {
	text, err := os.ReadFile(filepath.Join(folder, tag, "current/link"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if h, ok := parseHash(string(text)); ok {
		return map[string]hash{tag: h}, nil
	}
	return nil, nil
}

// linksOf returns the links of a folder with one folder for each digest.
func linksOf(folder string) (map[hash]time.Time, error) {
	entries, err := entriesOf(folder)
	if err != nil {
		return nil, err
	}
	found := map[hash]time.Time{}
	for _, entry := range entries {
		h, ok := parseHash(entry.Name())
		if !ok {
			continue
		}
		about, err := os.Lstat(filepath.Join(folder, entry.Name(), "link"))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		found[h] = about.ModTime()
	}
	return found, nil
}

func (s *scan) readBlobs(ctx context.Context) error {
	folders, err := entriesOf(s.layout.blobs())
	if err != nil {
		return err
	}
	for _, folder := range folders {
		if err := ctx.Err(); err != nil {
			return err
		}
		entries, err := entriesOf(filepath.Join(s.layout.blobs(), folder.Name()))
		if err != nil {
			return err
		}
		for _, entry := range entries {
			h, ok := parseHash(entry.Name())
			if !ok {
				continue
			}
			about, err := os.Lstat(s.layout.blob(h))
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return err
			}
			s.blobs[h] = blob{about.Size(), about.ModTime()}
		}
	}
	return nil
}

// needed returns all that manifests name, and these themselves. It reads manifests, and fails rather than miss one.
func (s *scan) needed(ctx context.Context) (map[hash]bool, error) {
	all := newReached()
	for _, one := range s.repositories {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		for h := range one.revisions {
			if err := s.reach(h, all); err != nil {
				return nil, err
			}
		}
	}
	return all.blobs, nil
}

func newReached() reached { return reached{blobs: map[hash]bool{}, manifests: map[hash]bool{}} }

// reached is what manifests name. One may name another as a layer, so which ones were read is kept apart.
type reached struct {
	blobs     map[hash]bool // manifests among them
	manifests map[hash]bool
}

// reach adds a manifest, what it names, and what the manifests among that name.
func (s *scan) reach(h hash, all reached) error {
	if all.manifests[h] {
		return nil
	}
	all.manifests[h], all.blobs[h] = true, true
	names, there, err := s.manifest(h)
	if err != nil || !there {
		return err
	}
	for _, one := range names.blobs {
		all.blobs[one] = true
	}
	for _, one := range names.manifests {
		if err := s.reach(one, all); err != nil {
			return err
		}
	}
	return nil
}

// fresh returns the blobs to which a link was written after a moment.
func (s *scan) fresh(after time.Time) map[hash]bool {
	found := map[hash]bool{}
	for _, one := range s.repositories {
		for h, written := range one.layers {
			if written.After(after) {
				found[h] = true
			}
		}
	}
	return found
}

// entriesOf lists a folder; one that is not there, or just went, is empty.
func entriesOf(folder string) ([]fs.DirEntry, error) {
	entries, err := os.ReadDir(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return entries, err
}
