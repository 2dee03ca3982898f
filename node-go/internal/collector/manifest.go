package collector

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"
)

const (
	// The registry takes no larger one.
	maxManifest = 4 << 20
	// Nothing is written for so long.
	halfWritten = time.Hour
)

// named is what a manifest or an index names.
type named struct {
	blobs     []hash
	manifests []hash
}

type descriptor struct {
	Digest string `json:"digest"`
}

// document has the fields of all kinds of manifests, schema 1 among them.
type document struct {
	Config    *descriptor  `json:"config"`
	Layers    []descriptor `json:"layers"`
	Blobs     []descriptor `json:"blobs"`
	Manifests []descriptor `json:"manifests"`
	Subject   *descriptor  `json:"subject"`
	FSLayers  []struct {
		BlobSum string `json:"blobSum"`
	} `json:"fsLayers"`
}

// namedIn reads what a manifest names; of what cannot be read, nothing: the registry does not give it to anybody either.
func namedIn(text []byte) (named, error) {
	var read document
	if err := json.Unmarshal(text, &read); err != nil {
		return named{}, err
	}
	var found named
	add := func(to *[]hash, digest string) {
		if one, ok := parseHash(digest); ok {
			*to = append(*to, one)
		}
	}
	for _, one := range append(append(read.Layers, read.Blobs...), optional(read.Config)...) {
		add(&found.blobs, one.Digest)
	}
	for _, one := range read.FSLayers {
		add(&found.blobs, one.BlobSum)
	}
	for _, one := range append(read.Manifests, optional(read.Subject)...) {
		add(&found.manifests, one.Digest)
	}
	return found, nil
}

func optional(one *descriptor) []descriptor {
	if one == nil {
		return nil
	}
	return []descriptor{*one}
}

// manifest returns what a manifest names that the registry has, or has in the trash; false: it has none.
func (s *scan) manifest(h hash) (named, bool, error) {
	if found, ok := s.known[h]; ok {
		return found, true, nil
	}
	text, err := readFirst(maxManifest, append([]string{s.layout.blob(h)}, s.trashed[h]...)...)
	if errors.Is(err, fs.ErrNotExist) {
		return named{}, false, nil
	}
	if err != nil {
		return named{}, false, err
	}
	found, err := namedIn(text)
	if err == nil && hash(sha256.Sum256(text)) == h {
		s.known[h] = found
		return found, true, nil
	}
	// Half of one that is being written names too little; one that stays so is given to nobody.
	if about, err := os.Lstat(s.layout.blob(h)); err == nil && time.Since(about.ModTime()) < halfWritten {
		return named{}, false, fmt.Errorf("the manifest %s is being written", h)
	}
	return found, true, nil
}

func readFirst(most int64, paths ...string) ([]byte, error) {
	for _, path := range paths {
		file, err := os.Open(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		text, err := io.ReadAll(io.LimitReader(file, most))
		return text, errors.Join(err, file.Close())
	}
	return nil, fs.ErrNotExist
}
