// Package layer makes the layer of an image of what a sandbox has changed in its file system. What is listed and read
// comes from code that the platform does not trust: nothing of it is followed, and all of it is bounded.
package layer

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"math"
	"path"
	"strings"
)

const (
	attributePrefix = "SCHILY.xattr."
	overlayPrefix   = "trusted.overlay."
	opaqueAttribute = overlayPrefix + "opaque"
)

// Kind is what an entry is.
type Kind byte

// The kinds of entries.
const (
	File Kind = iota
	Folder
	Symlink
	Hardlink
	Pipe
	Device
	Whiteout // of a file that the image has
)

// Entry is one file of the upper folder.
type Entry struct {
	Path       string // absolute, without . and ..; "/" for the folder itself
	Link       string // of a symbolic link its text, of a hard link the path of an earlier entry
	Attributes map[string]string
	ModifiedS  int64
	Size       int64
	UID, GID   uint32
	Mode       uint16 // the bits of rights
	Kind       Kind
	Opaque     bool // a folder that hides what the image has there
}

// ErrTooMany is of a file system with more files than a layer takes.
var ErrTooMany = errors.New("too many files")

// List reads the listing of a gVisor kernel: a tar in which a regular file's content says how long the file is, in
// eight bytes, and where the kernel keeps it.
func List(from io.Reader, bound Bound) ([]Entry, error) {
	limited := &io.LimitedReader{R: from, N: bound.listing()}
	archive := tar.NewReader(limited)
	// A path is listed once and below a folder, or whoever unpacks the layer could be led elsewhere by a link.
	seen := map[string]Kind{}
	var found []Entry
	names := 0
	for {
		header, err := archive.Next()
		switch {
		case err == io.EOF:
			return found, nil
		case limited.N == 0:
			return nil, ErrTooMany
		case err != nil:
			return nil, fmt.Errorf("the listing is no archive: %w", err)
		}
		entry, err := entryOf(header, archive)
		if err != nil {
			return nil, err
		}
		// gVisor has one inode for all whiteouts, so all but the first are listed as links to it.
		if linked, is := seen[entry.Link]; entry.Kind == Hardlink && is && linked == Whiteout {
			entry.Kind, entry.Link = Whiteout, ""
		}
		if above, is := seen[path.Dir(entry.Path)]; entry.Path != "/" && (!is || above != Folder) {
			return nil, fmt.Errorf("the listing has %.200q, and no folder above it", entry.Path)
		}
		if _, is := seen[entry.Path]; is {
			return nil, fmt.Errorf("the listing has %.200q twice", entry.Path)
		}
		seen[entry.Path] = entry.Kind
		names += len(entry.Path) + len(entry.Link)
		for name, value := range entry.Attributes {
			names += len(name) + len(value)
		}
		if len(found) == bound.Entries || names > bound.names() {
			return nil, ErrTooMany
		}
		found = append(found, entry)
	}
}

func entryOf(header *tar.Header, content io.Reader) (Entry, error) {
	at, err := pathOf(header.Name)
	if err != nil {
		return Entry{}, err
	}
	if header.Uid < 0 || header.Gid < 0 || header.Uid > math.MaxUint32 || header.Gid > math.MaxUint32 {
		return Entry{}, fmt.Errorf("the listing says that %.200q is of user %d and group %d", header.Name, header.Uid, header.Gid)
	}
	entry := Entry{
		Path: at, Mode: uint16(header.Mode & 0o7777), UID: uint32(header.Uid), GID: uint32(header.Gid),
		ModifiedS: max(0, header.ModTime.Unix()),
	}
	switch header.Typeflag {
	case tar.TypeReg:
		entry.Kind = File
		entry.Size, err = sizeOf(header, content)
	case tar.TypeDir:
		entry.Kind = Folder
	case tar.TypeSymlink:
		entry.Kind, entry.Link = Symlink, header.Linkname
	case tar.TypeLink:
		entry.Kind = Hardlink
		entry.Link, err = pathOf(header.Linkname)
	case tar.TypeFifo:
		entry.Kind = Pipe
	case tar.TypeBlock, tar.TypeChar:
		entry.Kind = Device
		if header.Typeflag == tar.TypeChar && header.Devmajor == 0 && header.Devminor == 0 {
			entry.Kind = Whiteout
		}
	default:
		return Entry{}, fmt.Errorf("the listing has %.200q with the unknown type %q", header.Name, header.Typeflag)
	}
	entry.attributes(header)
	return entry, err
}

func (e *Entry) attributes(header *tar.Header) {
	for name, value := range header.PAXRecords {
		name, is := strings.CutPrefix(name, attributePrefix)
		if !is {
			continue
		}
		if name == opaqueAttribute {
			e.Opaque = e.Kind == Folder && (value == "y" || value == "x")
			continue
		}
		if e.Attributes == nil {
			e.Attributes = map[string]string{}
		}
		e.Attributes[name] = value
	}
}

// pathOf makes ./a/b the path /a/b.
func pathOf(name string) (string, error) {
	inner := strings.TrimSuffix(strings.TrimPrefix(name, "."), "/")
	if name == "." || name == "./" {
		return "/", nil
	}
	if !strings.HasPrefix(name, "./") || strings.ContainsRune(inner, 0) {
		return "", fmt.Errorf("the listing has a file called %.200q", name)
	}
	for part := range strings.SplitSeq(inner[1:], "/") {
		if part == "" || part == "." || part == ".." {
			return "", fmt.Errorf("the listing has a file called %.200q", name)
		}
	}
	return inner, nil
}

// sizeOf reads a file's length; behind it, in parts of 24 bytes, is where the kernel keeps it.
func sizeOf(header *tar.Header, content io.Reader) (int64, error) {
	var head [8]byte
	if header.Size < 8 || (header.Size-8)%24 != 0 {
		return 0, fmt.Errorf("%w: %d bytes say where %.200q is", ErrForm, header.Size, header.Name)
	}
	if _, err := io.ReadFull(content, head[:]); err != nil {
		return 0, fmt.Errorf("the listing breaks off at %.200q: %w", header.Name, err)
	}
	var size uint64
	for at, one := range head {
		size |= uint64(one) << (8 * at)
	}
	if size > math.MaxInt64 {
		return 0, fmt.Errorf("the listing says that %.200q has %d bytes", header.Name, size)
	}
	return int64(size), nil
}

// ErrForm is of a listing that another version of gVisor may write.
var ErrForm = errors.New("the listing has another form than this version of rollbox knows")
