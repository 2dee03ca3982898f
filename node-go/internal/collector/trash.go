package collector

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

const (
	// A folder needs room on a volume that is full.
	reserveBytes = 1 << 20
	// A collection that is killed is gone on with after Settle, counted from when a batch was begun.
	batchFor = time.Second
)

// batch is a folder of the trash: blobs that were moved there by one collection. Its name is when, in Unix ms.
type batch struct {
	folder string
	moved  time.Time
	blobs  []hash
}

func (c *Collector) batches() ([]batch, error) {
	entries, err := entriesOf(c.layout.trash())
	if err != nil {
		return nil, err
	}
	var found []batch
	for _, entry := range entries {
		at, err := strconv.ParseInt(entry.Name(), 10, 64)
		if err != nil {
			continue
		}
		one := batch{folder: filepath.Join(c.layout.trash(), entry.Name()), moved: time.UnixMilli(at)}
		files, err := entriesOf(one.folder)
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			if h, ok := parseHash(file.Name()); ok {
				one.blobs = append(one.blobs, h)
			}
		}
		found = append(found, one)
	}
	return found, nil
}

// newBatch makes a folder for what is moved within the next second.
func (c *Collector) newBatch() (string, error) {
	folder := filepath.Join(c.layout.trash(), strconv.FormatInt(time.Now().UnixMilli(), 10))
	err := os.Mkdir(folder, 0o755)
	if errors.Is(err, syscall.ENOSPC) {
		if err := os.Remove(c.layout.reserve()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		err = os.Mkdir(folder, 0o755)
	}
	return folder, ignoring(err, fs.ErrExist)
}

// keepReserve keeps some room that a collection can give itself. Without it, it tries all the same.
func (c *Collector) keepReserve() {
	if about, err := os.Stat(c.layout.reserve()); err == nil && about.Size() == reserveBytes {
		return
	}
	if err := os.WriteFile(c.layout.reserve(), make([]byte, reserveBytes), 0o644); err != nil {
		_ = os.Remove(c.layout.reserve())
	}
}
