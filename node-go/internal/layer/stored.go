package layer

import (
	"archive/tar"
	"fmt"
	"io"
	"path"
	"strings"
)

const block = 512

// Stored is a layer as it lies in a file, with what is where in it.
type Stored struct {
	from   io.ReaderAt
	parts  map[string]part
	links  map[string]string // of hard links alone: to which path
	gone   map[string]bool   // what it removes from the image below
	opaque map[string]bool   // folders of which nothing below is seen
}

// part is one entry of an archive: its headers, and what follows them.
type part struct {
	at, size int64 // with its headers, and to the end of its last block
	kind     Kind
}

// Index reads a layer once, from its beginning, and remembers where its entries are. What is read has to be in the file
// too when the entries are; it may be written to it meanwhile.
func Index(read io.Reader, from io.ReaderAt, bound Bound) (*Stored, error) {
	counted := &counting{from: read}
	archive := tar.NewReader(counted)
	made := &Stored{from: from, parts: map[string]part{}, links: map[string]string{}, gone: map[string]bool{}, opaque: map[string]bool{}}
	names, begin := 0, int64(0)
	for {
		header, err := archive.Next()
		if err == io.EOF {
			// The end of the archive, and what compression has behind it.
			_, err := io.Copy(io.Discard, counted)
			return made, err
		}
		if err != nil {
			return nil, fmt.Errorf("the layer is no archive: %w", err)
		}
		size := (header.Size + block - 1) / block * block
		if err := made.add(header, part{at: begin, size: counted.passed + size - begin}); err != nil {
			return nil, err
		}
		begin = counted.passed + size
		names += len(header.Name) + len(header.Linkname)
		if len(made.parts)+len(made.gone)+len(made.opaque) > bound.Entries || names > bound.names() {
			return nil, ErrTooMany
		}
	}
}

func (s *Stored) add(header *tar.Header, one part) error {
	at, err := placeOf(header.Name)
	if err != nil {
		return err
	}
	folder, name := path.Dir(at), path.Base(at)
	switch {
	case name == opaqueName:
		s.opaque[folder] = true
		return nil
	case strings.HasPrefix(name, whiteoutPrefix):
		s.gone[path.Join(folder, name[len(whiteoutPrefix):])] = true
		return nil
	}
	kinds := map[byte]Kind{
		tar.TypeReg: File, tar.TypeDir: Folder, tar.TypeSymlink: Symlink, tar.TypeLink: Hardlink, tar.TypeFifo: Pipe,
	}
	kind, known := kinds[header.Typeflag]
	if !known {
		return fmt.Errorf("the layer has %.200q with the unknown type %q", header.Name, header.Typeflag)
	}
	one.kind = kind
	if kind == Hardlink {
		if s.links[at], err = placeOf(header.Linkname); err != nil {
			return err
		}
	} else {
		delete(s.links, at)
	}
	s.parts[at] = one
	return nil
}

func (s *Stored) has(at string) (part, bool) {
	if s == nil {
		return part{}, false
	}
	one, is := s.parts[at]
	return one, is
}

// read returns the header and the content of an entry.
func (s *Stored) read(one part) (*tar.Header, io.Reader, error) {
	archive := tar.NewReader(io.NewSectionReader(s.from, one.at, one.size))
	header, err := archive.Next()
	return header, archive, err
}

// file follows hard links to the file itself; false: the layer does not have it.
func (s *Stored) file(at string) (string, bool) {
	for range 16 {
		one, is := s.parts[at]
		if !is || one.kind != Hardlink {
			return at, is && one.kind != Folder
		}
		at = s.links[at]
	}
	return "", false
}

// placeOf makes a name of a layer an absolute path; ./ is the folder itself.
func placeOf(name string) (string, error) {
	inner := strings.TrimSuffix(strings.TrimPrefix(name, "./"), "/")
	if inner == "" || inner == "." {
		return "/", nil
	}
	for part := range strings.SplitSeq(inner, "/") {
		if part == "" || part == "." || part == ".." {
			return "", fmt.Errorf("the layer has a file called %.200q", name)
		}
	}
	return "/" + inner, nil
}

type counting struct {
	from   io.Reader
	passed int64
}

func (c *counting) Read(into []byte) (int, error) {
	n, err := c.from.Read(into)
	c.passed += int64(n)
	return n, err
}
