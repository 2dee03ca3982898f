package builder

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

var digestForm = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

var blobs = filepath.Join("blobs", "sha256")

// layout is a folder of blobs, as an image layout has them.
type layout string

// path returns where a blob is; the digest has been checked.
func (l layout) path(digest string) string {
	return filepath.Join(string(l), blobs, digest[len("sha256:"):])
}

// put writes a blob, whose content has to be what its digest says.
func (l layout) put(digest string, content io.Reader) error {
	to := l.path(digest)
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	part, err := os.CreateTemp(filepath.Dir(to), ".part-")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(part.Name()) }()
	seen := sha256.New()
	_, err = io.Copy(io.MultiWriter(part, seen), content)
	if err = errors.Join(err, part.Close()); err != nil {
		return err
	}
	if got := "sha256:" + hex.EncodeToString(seen.Sum(nil)); got != digest {
		return fmt.Errorf("%s was sent as %s", got, digest)
	}
	return os.Rename(part.Name(), to)
}

// begin empties it, but for the blobs of another one, which are in both then: what is there BuildKit does not copy again.
func (l layout) begin(with layout) error {
	if err := os.RemoveAll(string(l)); err != nil {
		return err
	}
	folder := filepath.Join(string(l), blobs)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	there, err := os.ReadDir(filepath.Join(string(with), blobs))
	if err != nil {
		return err
	}
	for _, one := range there {
		if err := os.Link(filepath.Join(string(with), blobs, one.Name()), filepath.Join(folder, one.Name())); err != nil {
			return err
		}
	}
	return nil
}

// made returns the one image that a builder has written.
func (l layout) made() (ocispec.Manifest, error) {
	var index ocispec.Index
	var manifest ocispec.Manifest
	if err := read(filepath.Join(string(l), "index.json"), &index); err != nil {
		return manifest, err
	}
	if len(index.Manifests) != 1 || !digestForm.MatchString(index.Manifests[0].Digest.String()) {
		return manifest, fmt.Errorf("the builder has made %d images", len(index.Manifests))
	}
	return manifest, read(l.path(index.Manifests[0].Digest.String()), &manifest)
}

func read(name string, into any) error {
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}
