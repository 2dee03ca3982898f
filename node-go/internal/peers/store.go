package peers

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

var digestForm = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

var errNoDigest = errors.New("not a sha256 digest")

// store is what this node's containerd has of content, in its own folder; what is not complete is elsewhere.
type store struct{ folder string }

func (s store) path(digest string) string {
	return filepath.Join(s.folder, "blobs", "sha256", strings.TrimPrefix(digest, "sha256:"))
}

func (s store) has(digest string) bool {
	if !digestForm.MatchString(digest) {
		return false
	}
	about, err := os.Stat(s.path(digest))
	return err == nil && about.Mode().IsRegular()
}

// open returns the content and its size.
func (s store) open(digest string) (*os.File, int64, error) {
	if !digestForm.MatchString(digest) {
		return nil, 0, errNoDigest
	}
	file, err := os.Open(s.path(digest))
	if err != nil {
		return nil, 0, err
	}
	about, err := file.Stat()
	if err != nil || !about.Mode().IsRegular() {
		return nil, 0, errors.Join(err, file.Close(), fs.ErrNotExist)
	}
	return file, about.Size(), nil
}

// all returns the digests of what is here; none where the folder cannot be listed.
func (s store) all() ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(s.folder, "blobs", "sha256"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	found := make([]string, 0, len(entries))
	for _, one := range entries {
		if digest := "sha256:" + one.Name(); digestForm.MatchString(digest) {
			found = append(found, digest)
		}
	}
	return found, nil
}
