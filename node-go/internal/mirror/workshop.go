package mirror

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

const (
	workshops = "convert-"
	// A conversion that broke off and that nobody has asked for again for so long is begun from nothing.
	keptFor = 24 * time.Hour
	// Of the room for conversions those may take so much together that broke off; the one at work takes the rest.
	keptShare = 5
)

// workshop returns the folder of one conversion, with what an earlier attempt has finished, and makes room for it. One
// conversion is at work at a time, so no other one needs its folder now.
func (c *Copier) workshop(wish request) (string, error) {
	own := workshops + fmt.Sprintf("%x", sha256.Sum256([]byte(wish.key())))[:32]
	if err := makeRoom(c.Folder, own, c.Scratch/keptShare, time.Now()); err != nil {
		return "", err
	}
	folder := filepath.Join(c.Folder, own)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return "", err
	}
	return folder, os.Chtimes(folder, time.Time{}, time.Now())
}

// makeRoom removes the folders of other conversions, those that were used the longest ago first, until no more than so
// many bytes are left.
func makeRoom(in, own string, limit int64, now time.Time) error {
	found, err := filepath.Glob(filepath.Join(in, workshops+"*"))
	if err != nil {
		return err
	}
	type kept struct {
		path string
		used time.Time
	}
	var others []kept
	for _, path := range found {
		if filepath.Base(path) == own {
			continue
		}
		about, err := os.Stat(path)
		if err != nil {
			return err
		}
		others = append(others, kept{path, about.ModTime()})
	}
	slices.SortFunc(others, func(a, b kept) int { return b.used.Compare(a.used) })
	var failed []error
	for _, one := range others {
		size, err := sizeOf(one.path)
		if limit -= size; err != nil || limit < 0 || now.Sub(one.used) > keptFor {
			failed = append(failed, os.RemoveAll(one.path))
			limit += size
		}
	}
	return errors.Join(failed...)
}

func sizeOf(folder string) (total int64, err error) {
	err = filepath.WalkDir(folder, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		about, err := entry.Info()
		if err == nil {
			total += about.Size()
		}
		return err
	})
	return total, err
}
