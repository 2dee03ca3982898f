package convert

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/containerd/stargz-snapshotter/estargz"
	"github.com/klauspost/compress/gzip"
	"github.com/opencontainers/go-digest"
)

// verify reads a finished layer in both ways in which nodes read it, as a tar archive and through its table of
// contents, and compares what it finds with what it was made of. Cost: the layer is read three times.
func verify(ctx context.Context, w *written, source *io.SectionReader, worked func(int64)) error {
	file, err := os.Open(w.file)
	if err != nil {
		return err
	}
	defer file.Close()
	want, err := entries(ctx, io.NewSectionReader(source, 0, source.Size()))
	if err != nil {
		return err
	}
	content, err := gzip.NewReader(&counting{inner: file, worked: worked})
	if err != nil {
		return err
	}
	got, err := entries(ctx, content)
	if err != nil {
		return fmt.Errorf("the converted layer: %w", err)
	}
	if err := same(want, got); err != nil {
		return err
	}
	return verifyTOC(ctx, w, io.NewSectionReader(&countingAt{file, worked}, 0, w.Size), want)
}

// entry is what makes two files the same.
type entry struct {
	kind     byte
	mode     int64
	uid, gid int
	size     int64
	seconds  int64
	target   string
	major    int64
	minor    int64
	xattrs   [sha256.Size]byte
	content  [sha256.Size]byte
}

// entries are those of an archive by name; of some with the same name the last counts, as for every reader.
func entries(ctx context.Context, archive io.Reader) (map[string]entry, error) {
	found := map[string]entry{}
	for reader := tar.NewReader(untilDone{ctx, archive}); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return found, nil
		}
		if err != nil {
			return nil, err
		}
		if isOurs(clean(header.Name)) {
			continue
		}
		one := entryOf(header)
		sum := sha256.New()
		if _, err := io.Copy(sum, reader); err != nil {
			return nil, err
		}
		sum.Sum(one.content[:0])
		found[clean(header.Name)] = one
	}
}

func entryOf(header *tar.Header) entry {
	one := entry{
		kind: header.Typeflag, mode: header.Mode, uid: header.Uid, gid: header.Gid, size: header.Size,
		seconds: header.ModTime.Unix(), target: header.Linkname, major: header.Devmajor, minor: header.Devminor,
	}
	var records []string
	for record, value := range header.PAXRecords {
		if strings.HasPrefix(record, "SCHILY.xattr.") {
			records = append(records, fmt.Sprintf("%q=%q", record, value))
		}
	}
	slices.Sort(records)
	one.xattrs = sha256.Sum256([]byte(strings.Join(records, "\n")))
	return one
}

func same(want, got map[string]entry) error {
	for name, one := range want {
		if other, is := got[name]; !is || other != one {
			return fmt.Errorf("%q differs in the converted layer", name)
		}
	}
	if len(want) != len(got) {
		return fmt.Errorf("the converted layer has %d entries instead of %d", len(got), len(want))
	}
	return nil
}

// verifyTOC reads every chunk of every file through the table of contents, as a lazy mount does.
func verifyTOC(ctx context.Context, w *written, blob *io.SectionReader, want map[string]entry) error {
	reader, err := estargz.Open(blob)
	if err != nil {
		return fmt.Errorf("the converted layer: %w", err)
	}
	wanted, err := digest.Parse(w.TOC)
	if err != nil {
		return err
	}
	verifier, err := reader.VerifyTOC(wanted)
	if err != nil {
		return fmt.Errorf("the converted layer: %w", err)
	}
	buffer := make([]byte, chunkBytes)
	for name, one := range want {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := verifyEntry(reader, verifier, name, one, buffer); err != nil {
			return fmt.Errorf("%q in the converted layer's table of contents: %w", name, err)
		}
	}
	return nil
}

func verifyEntry(reader *estargz.Reader, verifier estargz.TOCEntryVerifier, name string, want entry, buffer []byte) error {
	found, is := reader.Lookup(name)
	if !is {
		return errors.New("it is missing")
	}
	if want.kind == tar.TypeLink {
		return nil // Lookup gives what it is a link to, which is looked at under its own name
	}
	if found.UID != want.uid || found.GID != want.gid || found.Mode&0o7777 != want.mode&0o7777 {
		return errors.New("its owner or mode differs")
	}
	switch want.kind {
	case tar.TypeSymlink:
		if found.LinkName != want.target {
			return errors.New("its target differs")
		}
	case tar.TypeReg:
		return verifyChunks(reader, verifier, name, want, buffer)
	}
	return nil
}

// verifyChunks reads each chunk at once: the library decompresses it from its beginning for every read of a part of it.
func verifyChunks(reader *estargz.Reader, verifier estargz.TOCEntryVerifier, name string, want entry, buffer []byte) error {
	file, err := reader.OpenFile(name)
	if err != nil {
		return err
	}
	if file.Size() != want.size {
		return fmt.Errorf("it has %d bytes instead of %d", file.Size(), want.size)
	}
	whole := sha256.New()
	for offset := int64(0); offset < want.size; {
		chunk, is := reader.ChunkEntryForOffset(name, offset)
		if !is || chunk.ChunkSize <= 0 || chunk.ChunkSize > int64(len(buffer)) {
			return fmt.Errorf("there is no chunk at %d", offset)
		}
		check, err := verifier.Verifier(chunk)
		if err != nil {
			return err
		}
		content := buffer[:chunk.ChunkSize]
		if _, err := file.ReadAt(content, chunk.ChunkOffset); err != nil {
			return err
		}
		_, _ = check.Write(content)
		_, _ = whole.Write(content)
		if !check.Verified() {
			return fmt.Errorf("the chunk at %d has another digest", offset)
		}
		offset = chunk.ChunkOffset + chunk.ChunkSize
	}
	if got := [sha256.Size]byte(whole.Sum(nil)); got != want.content {
		return errors.New("its content differs")
	}
	return nil
}
