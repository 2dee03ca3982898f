package convert

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/containerd/stargz-snapshotter/estargz"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/klauspost/compress/gzip"
)

// How layers are written. Other values, and other versions of the library, give other digests: form is a part of the
// name under which a finished layer is found again.
const (
	form        = "3"
	chunkBytes  = 4 << 20
	parallelism = 4
	level       = 6
	plainPrefix = "plain-" // of the name of a file with a layer's content, while it is worked on
)

// written is one finished layer.
type written struct {
	Digest       v1.Hash `json:"digest"`
	DiffID       v1.Hash `json:"diff_id"`
	TOC          string  `json:"toc"`
	Size         int64   `json:"size"`
	Uncompressed int64   `json:"uncompressed"`
	// Of the files that come first, those of which nothing is seen in the layers below.
	Hides  []string `json:"hides,omitempty"`
	file   string
	worked func(int64)
}

// annotations are what a snapshotter needs to find and to verify the table of contents.
func (w *written) annotations() map[string]string {
	return map[string]string{
		estargz.TOCJSONDigestAnnotation:         w.TOC,
		estargz.StoreUncompressedSizeAnnotation: strconv.FormatInt(w.Uncompressed, 10),
	}
}

// The interface v1.Layer, from the file.

func (w *written) layer() v1.Layer { return fileLayer{w} }

type fileLayer struct{ w *written }

func (l fileLayer) Digest() (v1.Hash, error)            { return l.w.Digest, nil }
func (l fileLayer) DiffID() (v1.Hash, error)            { return l.w.DiffID, nil }
func (l fileLayer) Size() (int64, error)                { return l.w.Size, nil }
func (l fileLayer) MediaType() (types.MediaType, error) { return types.OCILayer, nil }
func (l fileLayer) Compressed() (io.ReadCloser, error) {
	file, err := os.Open(l.w.file)
	if err != nil {
		return nil, err
	}
	return struct {
		io.Reader
		io.Closer
	}{&counting{inner: file, worked: l.w.worked}, file}, nil
}

func (l fileLayer) Uncompressed() (io.ReadCloser, error) {
	file, err := os.Open(l.w.file)
	if err != nil {
		return nil, err
	}
	content, err := gzip.NewReader(file)
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	return struct {
		io.Reader
		io.Closer
	}{content, file}, nil
}

// layers converts one layer after the other, from the top to the bottom, in a folder of its own.
type layers struct {
	folder string
	// Those that are not hidden by a layer that is converted: a file comes first in the layer in which it is seen.
	first []string
	// Whether somebody has given a list; else each layer keeps the order that it was built with.
	listed bool
	limits Limits
	left   int64
	worked func(int64)
}

// convert gives the finished layer: one that an earlier, interrupted conversion has left, or a new one.
func (c *layers) convert(ctx context.Context, source v1.Layer, diffID v1.Hash) (*written, error) {
	digest, err := source.Digest()
	if err != nil {
		return nil, err
	}
	name := c.name(digest, diffID)
	done, err := c.found(name)
	if done == nil && err == nil {
		done, err = c.make(ctx, name, source, diffID)
	}
	if err != nil {
		return nil, err
	}
	done.worked = c.worked
	c.first = without(c.first, done.Hides)
	if c.left -= done.Uncompressed; c.left < 0 {
		return nil, refused("the image has more than %d bytes when it is decompressed", c.limits.ImageBytes)
	}
	return done, nil
}

// without returns some files without others, in their order.
func without(files, others []string) []string {
	hidden := map[string]bool{}
	for _, one := range others {
		hidden[one] = true
	}
	return slices.DeleteFunc(slices.Clone(files), func(one string) bool { return hidden[one] })
}

func (c *layers) name(digest, diffID v1.Hash) string {
	sum := sha256.New()
	fmt.Fprintln(sum, form, digest, diffID)
	for _, one := range c.first {
		fmt.Fprintf(sum, "%q\n", one)
	}
	return hexOf(sum)
}

// found: the note is written last, so what has one is whole; its content is looked at all the same.
func (c *layers) found(name string) (*written, error) {
	note, err := os.ReadFile(filepath.Join(c.folder, name+".json"))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	w := &written{file: filepath.Join(c.folder, name)}
	if json.Unmarshal(note, w) != nil {
		return nil, nil
	}
	file, err := os.Open(w.file)
	if err != nil {
		return nil, nil
	}
	defer file.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, &counting{inner: file, worked: c.worked}); err != nil || hexOf(sum) != w.Digest.Hex {
		return nil, err
	}
	return w, nil
}

func (c *layers) make(ctx context.Context, name string, source v1.Layer, diffID v1.Hash) (*written, error) {
	plain, err := os.CreateTemp(c.folder, plainPrefix)
	if err != nil {
		return nil, err
	}
	defer os.Remove(plain.Name())
	defer plain.Close()
	size, err := plainTar(ctx, source, diffID, plain, min(c.limits.LayerBytes, c.left), c.worked)
	if err != nil {
		return nil, err
	}
	content := io.NewSectionReader(&countingAt{plain, c.worked}, 0, size)
	has, built, err := scan(content, c.limits)
	if err != nil {
		return nil, err
	}
	first := c.first
	if !c.listed {
		first = built
	}
	w, err := c.build(ctx, name, content, has.present(first))
	if err != nil {
		return nil, err
	}
	w.Hides = has.hidden(c.first)
	if err := verify(ctx, w, content, c.worked); err != nil {
		return nil, errors.Join(err, os.Remove(w.file))
	}
	note, err := json.Marshal(w)
	if err != nil {
		return nil, err
	}
	return w, replace(filepath.Join(c.folder, name+".json"), note)
}

func (c *layers) build(ctx context.Context, name string, content *io.SectionReader, first []string) (*written, error) {
	blob, err := estargz.Build(content,
		estargz.WithContext(ctx), estargz.WithChunkSize(chunkBytes), estargz.WithParallelism(parallelism),
		estargz.WithCompressionLevel(level), estargz.WithPrioritizedFiles(first),
		estargz.WithAllowPrioritizeNotFound(&[]string{}))
	if err != nil {
		return nil, err
	}
	w := &written{TOC: blob.TOCDigest().String(), file: filepath.Join(c.folder, name)}
	sum := sha256.New()
	w.Size, err = writeFile(w.file, io.TeeReader(untilDone{ctx, blob}, sum))
	if err = errors.Join(err, blob.Close()); err != nil {
		return nil, err
	}
	if w.Uncompressed, err = blob.UncompressedSize(); err != nil {
		return nil, err
	}
	w.Digest = v1.Hash{Algorithm: "sha256", Hex: hexOf(sum)}
	w.DiffID, err = v1.NewHash(blob.DiffID().String())
	return w, err
}

func writeFile(path string, content io.Reader) (int64, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, err
	}
	size, err := io.Copy(file, content)
	return size, errors.Join(err, file.Close())
}

func replace(path string, content []byte) error {
	if err := os.WriteFile(path+".new", content, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// isOurs tells what the form adds to a layer.
func isOurs(name string) bool {
	switch strings.TrimPrefix(name, "/") {
	case estargz.PrefetchLandmark, estargz.NoPrefetchLandmark, estargz.TOCTarName:
		return true
	}
	return false
}
