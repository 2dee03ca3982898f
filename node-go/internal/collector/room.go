package collector

import (
	"context"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// Between two measurements, and so many times what one takes.
	measuredFor = 30 * time.Second
	restFactor  = 10
	// Of what the registry may have: below it nothing more is put there. A volume that runs full breaks pushes off, and
	// a folder of a pod that exceeds its limit is removed with the pod.
	fullShare   = 20
	mostReserve = 2 << 30
)

// Room is how full the registry is.
type Room struct {
	Disk, Used, Free int64
	Full             bool
}

// usage is the last measurement of what the registry takes; -1: there is none yet.
type usage struct {
	mu   sync.Mutex
	used int64
}

func (u *usage) set(used int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.used = used
}

func (u *usage) get() int64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.used
}

// Room tells what was measured last. Cost: one call to the system: nobody waits for a measurement.
func (c *Collector) Room() (Room, error) {
	var volume syscall.Statfs_t
	if err := syscall.Statfs(c.layout.folder, &volume); err != nil {
		return Room{}, err
	}
	block := int64(volume.Frsize)
	room := Room{Disk: int64(volume.Blocks) * block, Used: max(0, c.usage.get()), Free: int64(volume.Bavail) * block}
	if c.capacity > 0 && c.capacity < room.Disk {
		room.Disk = c.capacity
		room.Free = max(0, min(room.Free, c.capacity-room.Used))
	}
	room.Full = room.Free < min(room.Disk/fullShare, mostReserve)
	return room, nil
}

// Measure measures again and again until the context ends, where the registry may have a part of its volume only: of a
// whole one the system tells how full it is, and each scan what the registry has.
func (c *Collector) Measure(ctx context.Context) {
	for c.capacity > 0 && ctx.Err() == nil {
		began := time.Now()
		if used, err := size(ctx, c.layout.folder); err == nil {
			c.usage.set(used)
		} else if ctx.Err() == nil {
			c.log.Warn("what the registry takes is not known", "error", err)
		}
		_ = sleep(ctx, max(measuredFor, restFactor*time.Since(began)))
	}
}

func size(ctx context.Context, folder string) (used int64, err error) {
	err = filepath.WalkDir(folder, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil {
			return ignoring(err, fs.ErrNotExist)
		}
		about, err := entry.Info()
		if err != nil {
			return ignoring(err, fs.ErrNotExist)
		}
		used += taken(about)
		return ctx.Err()
	})
	return used, err
}

func taken(about fs.FileInfo) int64 {
	if system, ok := about.Sys().(*syscall.Stat_t); ok {
		return system.Blocks * 512
	}
	return about.Size()
}

// Stored is an image of the registry.
type Stored struct {
	Repository string
	Digest     hash
	Used       time.Time
	Parts      []hash
	// What a copy was made of, as its marker says.
	Sources []hash
	// Whether it is a recorded copy and nothing else; what stands for its owners, where it is told; and whether starts of
	// one are given it.
	Recorded bool
	Owners   []string
	Offered  bool
}

// List returns all images, and the sizes of their parts. Of copies those that have a name; of all others every manifest.
func (c *Collector) List(ctx context.Context) ([]Stored, map[hash]int64, error) {
	if err := c.rounds.Acquire(ctx, 1); err != nil {
		return nil, nil, err
	}
	defer c.rounds.Release(1)
	seen, err := c.scan(ctx)
	if err != nil {
		return nil, nil, err
	}
	var found []Stored
	sizes := map[hash]int64{}
	leads := map[string]map[hash][]string{}
	for _, one := range seen.repositories {
		if isCopy(one.name) {
			if leads[one.name], err = seen.leads(one); err != nil {
				return nil, nil, err
			}
		}
		for h, sources := range one.roots() {
			used, there := one.revisions[h]
			if !there {
				continue
			}
			all := newReached()
			if err := seen.reach(h, all); err != nil {
				return nil, nil, err
			}
			image := Stored{Repository: one.name, Digest: h, Used: used, Sources: sources}
			image.lists(leads[one.name][h])
			for part := range all.blobs {
				if about, there := seen.blobs[part]; there {
					sizes[part] = about.size
					image.Parts = append(image.Parts, part)
				}
			}
			found = append(found, image)
		}
	}
	c.copies.Lock()
	defer c.copies.Unlock()
	c.leads = leads
	return found, sizes, nil
}

// roots are a repository's images, and of copies what they were made of.
func (r *repository) roots() map[hash][]hash {
	found := map[hash][]hash{}
	if !isCopy(r.name) {
		for h := range r.revisions {
			found[h] = nil
		}
		return found
	}
	for tag, h := range r.tags {
		if isNote(tag) {
			continue
		}
		sources := found[h]
		if source, ok := sourceOf(tag); ok {
			sources = append(sources, source)
		}
		found[h] = sources
	}
	return found
}

// sourceOf reads a marker, `copy-SOURCE-FORM-ARCHITECTURES`.
func sourceOf(tag string) (hash, bool) {
	rest, marks := strings.CutPrefix(tag, "copy-")
	text, _, _ := strings.Cut(rest, "-")
	found, ok := parseHash(text)
	return found, marks && ok
}

// leads returns the tags that lead to each manifest of a repository of copies: its own, and notes of it.
func (s *scan) leads(one *repository) (map[hash][]string, error) {
	found := map[hash][]string{}
	for tag, stands := range one.tags {
		to := stands
		if isNote(tag) {
			names, _, err := s.manifest(stands)
			if err != nil {
				return nil, err
			}
			if len(names.manifests) != 1 {
				continue
			}
			to = names.manifests[0]
		}
		found[to] = append(found[to], tag)
	}
	return found, nil
}
