package layer

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"time"
)

const (
	whiteoutPrefix = ".wh."
	opaqueName     = ".wh..wh..opq"
	// As controlplane/cluster/engine/commit/layer.py has them; contract/vectors/layer.json holds both to one table.
	maxDepth     = 256
	maxPathBytes = 4000
)

// Content reads a file of the sandbox.
type Content interface {
	// Read copies a file that has so many bytes; it is an error if it has others.
	Read(ctx context.Context, path string, size int64, into io.Writer) error
}

// TooLargeError is of a layer that would be longer than it may be.
type TooLargeError struct {
	Path string
	Max  int64
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("with %s it would have more than %d bytes", Shown(e.Path), e.Max)
}

// Layer writes one layer.
type Layer struct {
	out     *tar.Writer
	sink    *sink
	content Content
	places  places
	// Folders at or above a mount, which may be there for its sake alone: written once something in them is.
	waiting map[string]*Entry
	// What was left out, since links and folders may lead to it.
	left map[string]bool
	// Of the paths that links lead to, those that are in the layer.
	linked map[string]bool
	report Report
}

// Write writes the layer of what was listed, and returns what is not in it. At most max bytes are written.
func Write(ctx context.Context, into io.Writer, found []Entry, mounts []string, most int64, content Content) (*Report, error) {
	limited := &sink{to: into, left: most, max: most, path: "/"}
	made := &Layer{
		out: tar.NewWriter(limited), sink: limited, content: content, places: placesOf(mounts),
		waiting: map[string]*Entry{}, left: map[string]bool{}, linked: map[string]bool{},
	}
	if err := made.fits(found, most); err != nil {
		return nil, err
	}
	for at := range found {
		if found[at].Kind == Hardlink {
			made.linked[found[at].Link] = false
		}
	}
	for at := range found {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := made.entry(ctx, &found[at]); err != nil {
			return nil, limited.judge(err)
		}
	}
	return &made.report, limited.judge(made.out.Close())
}

// fits refuses what is certain to be too large before anything is read.
func (l *Layer) fits(found []Entry, most int64) error {
	const block = 512
	left := most
	for at := range found {
		if found[at].Kind != File || l.places.hold(found[at].Path) || strings.HasPrefix(path.Base(found[at].Path), whiteoutPrefix) {
			continue
		}
		if left -= block; left < found[at].Size {
			return &TooLargeError{found[at].Path, most}
		}
		left -= found[at].Size
	}
	return nil
}

func (l *Layer) entry(ctx context.Context, one *Entry) error {
	l.sink.path = one.Path
	switch {
	case one.Path == "/":
		return l.top(one)
	case l.places.hold(one.Path):
		l.left[one.Path] = true
		return nil
	case l.left[path.Dir(one.Path)]:
		l.left[one.Path] = true
		return nil
	}
	if why := l.refusal(one); why != "" {
		l.left[one.Path] = true
		l.report.skip(one.Path, why)
		return nil
	}
	if one.Kind == Folder && l.places.above[one.Path] && !one.Opaque {
		l.waiting[one.Path] = one
		return nil
	}
	if err := l.parents(one.Path); err != nil {
		return err
	}
	return l.add(ctx, one)
}

// top is the folder itself: gVisor always lists it, and its rights are almost always those of every image.
func (l *Layer) top(one *Entry) error {
	if one.Mode == 0o755 && one.UID == 0 && one.GID == 0 && !one.Opaque {
		return nil
	}
	return l.header(one, &tar.Header{Typeflag: tar.TypeDir})
}

func (l *Layer) refusal(one *Entry) string {
	switch {
	case strings.HasPrefix(path.Base(one.Path), whiteoutPrefix):
		return "its name would remove another file"
	case one.Kind == Whiteout:
		return ""
	case strings.Count(one.Path, "/") > maxDepth, len(one.Path) > maxPathBytes:
		return "it is too deep"
	case one.Kind == Device:
		return "a device"
	case one.Kind == Hardlink && !l.linked[one.Link]:
		return "a link to " + Shown(one.Link) + ", which is left out"
	}
	return ""
}

// parents writes the folders above a path that waited for something to be in them.
func (l *Layer) parents(of string) error {
	above := path.Dir(of)
	if above == "/" {
		return nil
	}
	if err := l.parents(above); err != nil {
		return err
	}
	if one := l.waiting[above]; one != nil {
		delete(l.waiting, above)
		return l.header(one, &tar.Header{Typeflag: tar.TypeDir})
	}
	return nil
}

func (l *Layer) add(ctx context.Context, one *Entry) error {
	if _, wanted := l.linked[one.Path]; wanted {
		l.linked[one.Path] = one.Kind != Folder && one.Kind != Whiteout
	}
	switch one.Kind {
	case Whiteout:
		return l.marker(path.Join(path.Dir(one.Path), whiteoutPrefix+path.Base(one.Path)))
	case Folder:
		if err := l.header(one, &tar.Header{Typeflag: tar.TypeDir}); err != nil || !one.Opaque {
			return err
		}
		return l.marker(path.Join(one.Path, opaqueName))
	case Symlink:
		return l.header(one, &tar.Header{Typeflag: tar.TypeSymlink, Linkname: one.Link})
	case Hardlink:
		one.Attributes = nil // those of the file that it leads to
		return l.header(one, &tar.Header{Typeflag: tar.TypeLink, Linkname: one.Link[1:]})
	case Pipe:
		return l.header(one, &tar.Header{Typeflag: tar.TypeFifo})
	default:
		if one.Size > l.sink.left {
			return &TooLargeError{one.Path, l.sink.max}
		}
		if err := l.header(one, &tar.Header{Typeflag: tar.TypeReg, Size: one.Size}); err != nil || one.Size == 0 {
			return err
		}
		return l.content.Read(ctx, one.Path, one.Size, l.out)
	}
}

func (l *Layer) marker(path string) error {
	return l.out.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: path[1:], Mode: 0o600, Format: tar.FormatPAX})
}

func (l *Layer) header(one *Entry, header *tar.Header) error {
	header.Name, header.Mode, header.Uid, header.Gid = one.Path[1:], int64(one.Mode), int(one.UID), int(one.GID)
	if header.Name == "" {
		header.Name = "./"
	} else if one.Kind == Folder {
		header.Name += "/"
	}
	// Whole seconds, as engines write them: a fraction would double the length of every small file.
	header.ModTime, header.Format = time.Unix(one.ModifiedS, 0), tar.FormatPAX
	header.PAXRecords = l.kept(one)
	if err := l.out.WriteHeader(header); err != nil {
		if errors.Is(err, tar.ErrHeader) {
			return fmt.Errorf("no archive can have %s: %w", Shown(one.Path), err)
		}
		return err
	}
	return nil
}

// kept returns the attributes that belong to the file and not to its kernel, as records of a header.
func (l *Layer) kept(one *Entry) map[string]string {
	var kept map[string]string
	for name, value := range one.Attributes {
		switch {
		case name == "security.capability", strings.HasPrefix(name, "user."):
			if kept == nil {
				kept = map[string]string{}
			}
			kept[attributePrefix+name] = value
		case !ambient(name):
			l.report.skip(one.Path, "its attribute "+Shown(name))
		}
	}
	return kept
}

// ambient attributes are written by kernels and security modules by themselves.
func ambient(name string) bool {
	for _, one := range []string{overlayPrefix, "security.selinux", "security.ima", "security.evm", "security.apparmor"} {
		if strings.HasPrefix(name, one) {
			return true
		}
	}
	return false
}
