package convert

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// zstdMemory is what the decoder of one layer may take; `zstd --ultra --long=27` needs 128 MiB.
const zstdMemory = 192 << 20

// plainTar writes the content of a layer, decompressed, to a file. The content has both digests that the image names.
func plainTar(ctx context.Context, layer v1.Layer, diffID v1.Hash, into *os.File, limit int64, worked func(int64)) (int64, error) {
	digest, err := layer.Digest()
	if err != nil {
		return 0, err
	}
	compressed, err := layer.Compressed()
	if err != nil {
		return 0, err
	}
	defer compressed.Close()
	source := &hashing{inner: untilDone{ctx, &counting{inner: compressed, worked: worked}}, sum: sha256.New()}
	content, done, err := decompressed(bufio.NewReaderSize(source, 1<<20))
	if err != nil {
		return 0, err
	}
	defer done()
	sum := sha256.New()
	size, err := io.Copy(io.MultiWriter(into, sum), io.LimitReader(content, limit+1))
	switch {
	case err != nil:
		return 0, fmt.Errorf("layer %s: %w", digest, err)
	case size > limit:
		return 0, refused("layer %s has more than %d bytes when it is decompressed", digest, limit)
	}
	// What follows the content is a part of the layer too: without it the digest says nothing.
	if _, err := io.Copy(io.Discard, source); err != nil {
		return 0, fmt.Errorf("layer %s: %w", digest, err)
	}
	if got := hexOf(source.sum); got != digest.Hex {
		return 0, fmt.Errorf("layer %s arrived with digest sha256:%s", digest, got)
	}
	if got := hexOf(sum); got != diffID.Hex {
		return 0, refused("the content of layer %s has digest sha256:%s, the image's configuration says %s", digest, got, diffID)
	}
	return size, nil
}

func hexOf(sum hash.Hash) string { return fmt.Sprintf("%x", sum.Sum(nil)) }

// decompressed goes by what is there, since media types are wrong in the wild.
func decompressed(source *bufio.Reader) (io.Reader, func(), error) {
	head, err := source.Peek(4)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, nil, err
	}
	switch {
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		content, err := gzip.NewReader(source)
		return content, func() {}, err
	case bytes.HasPrefix(head, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		content, err := zstd.NewReader(source, zstd.WithDecoderMaxMemory(zstdMemory), zstd.WithDecoderConcurrency(1))
		if err != nil {
			return nil, nil, err
		}
		return content, content.Close, nil
	}
	return source, func() {}, nil
}

type hashing struct {
	inner io.Reader
	sum   hash.Hash
}

func (h *hashing) Read(into []byte) (int, error) {
	n, err := h.inner.Read(into)
	h.sum.Write(into[:n])
	return n, err
}

// counting tells how much is read.
type counting struct {
	inner  io.Reader
	worked func(int64)
}

func (c *counting) Read(into []byte) (int, error) {
	n, err := c.inner.Read(into)
	c.worked(int64(n))
	return n, err
}

type countingAt struct {
	inner  io.ReaderAt
	worked func(int64)
}

func (c *countingAt) ReadAt(into []byte, offset int64) (int, error) {
	n, err := c.inner.ReadAt(into, offset)
	c.worked(int64(n))
	return n, err
}

// untilDone ends a read of much when its context does.
type untilDone struct {
	ctx   context.Context
	inner io.Reader
}

func (u untilDone) Read(into []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}
	return u.inner.Read(into)
}

// clean is the name of an entry as every reader of layers takes it: from the root, which is "".
func clean(name string) string { return strings.TrimPrefix(path.Clean("/"+name), "/") }

// scan reads the headers of a layer, and which files come first in it if its maker has said so; what could be read in two
// ways is refused.
func scan(content io.ReadSeeker, limits Limits) (contents, []string, error) {
	found, order := contents{}, builtOrder{}
	entries, duplicates, kept := 0, 0, int64(0)
	for reader := tar.NewReader(content); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return found, order.first(), nil
		}
		if err != nil {
			return nil, nil, refused("a layer is not a tar archive: %v", err)
		}
		if err := acceptable(header); err != nil {
			return nil, nil, err
		}
		if kept += length(header); kept > limits.HeaderBytes {
			return nil, nil, refused("the names and attributes of a layer's entries have more than %d bytes", limits.HeaderBytes)
		}
		order.add(clean(header.Name), header.Typeflag)
		if twice := found.add(clean(header.Name), header.Typeflag); twice {
			duplicates++
		}
		if entries++; entries > limits.Entries {
			return nil, nil, refused("a layer has more than %d entries", limits.Entries)
		}
		if duplicates > limits.Duplicates {
			return nil, nil, refused("a layer has more than %d entries of names that it has already", limits.Duplicates)
		}
	}
}

// length is how many bytes of an entry's header are as many as its maker likes.
func length(header *tar.Header) int64 {
	sum := len(header.Name) + len(header.Linkname)
	for name, value := range header.PAXRecords {
		if name != "path" && name != "linkpath" { // which are counted
			sum += len(name) + len(value)
		}
	}
	return int64(sum)
}

func acceptable(header *tar.Header) error {
	named := []string{header.Name}
	if header.Typeflag == tar.TypeLink {
		named = append(named, header.Linkname)
	}
	for _, one := range named {
		if len(one) > maxName || strings.ContainsRune(one, 0) {
			return refused("a layer has an entry whose name Linux does not take")
		}
		for part := range strings.SplitSeq(one, "/") {
			if part == ".." {
				return refused("a layer has an entry with .. in its name: %q", one)
			}
		}
	}
	switch header.Typeflag {
	case tar.TypeReg, tar.TypeLink, tar.TypeSymlink, tar.TypeChar, tar.TypeBlock, tar.TypeDir, tar.TypeFifo:
	default:
		return refused("a layer has an entry of type %q: %q", header.Typeflag, header.Name)
	}
	// A few bytes of a sparse file are terabytes for whoever reads it, and the library takes its map for content.
	for record := range header.PAXRecords {
		if strings.HasPrefix(record, "GNU.sparse.") {
			return refused("a layer has a sparse file: %q", header.Name)
		}
	}
	return nil
}
