package layer

import (
	"archive/tar"
	"context"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
)

// Squashed is the layer that stands for two, of which the second lies above the first: it makes of an image what these
// make, one after the other.
//
// What the first has made and the second removes may be in the image, too; nobody knows, so the mark of the removal stays.
// A kernel shows such a mark as a file where no layer below has its folder: so these folders have to be in one.
type Squashed struct {
	above, below *Stored
	of           map[string]*Stored // which of both has the entry at a path
	gone, opaque map[string]bool
	promoted     map[source]string // files whose own path is another's now, by the path that has them
	folders      []string          // that have to be in a layer below, each before those in it
}

type source struct {
	of *Stored
	at string
}

// Squash finds out what is in the layer. Cost: memory for the names of both. Folders is the layer that has been below the
// first one for the sake of its folders; nil: none was needed.
func Squash(below, above, folders *Stored, bound Bound) (*Squashed, error) {
	made := &Squashed{
		above: above, below: below, of: make(map[string]*Stored, len(above.parts)+len(below.parts)),
		gone: maps.Clone(above.gone), opaque: maps.Clone(above.opaque), promoted: map[source]string{},
	}
	for at := range above.parts {
		made.of[at] = above
	}
	for at := range below.parts {
		if !made.covered(at) {
			made.of[at] = below
		}
	}
	for at := range below.gone {
		made.remove(at)
	}
	for at := range below.opaque {
		if one, is := above.parts[at]; !made.hidden(at) && !above.gone[at] && (!is || one.kind == Folder) {
			made.opaque[at] = true
		}
	}
	made.replaced()
	made.anchor(folders)
	if len(made.of)+len(made.gone)+len(made.opaque) > bound.Entries {
		return nil, ErrTooMany
	}
	return made, nil
}

// hidden reports whether the upper layer lets nothing of the lower one be seen at a path, by what it has above it.
func (s *Squashed) hidden(at string) bool {
	for at != "/" {
		at = path.Dir(at)
		if one, is := s.above.parts[at]; s.above.gone[at] || s.above.opaque[at] || is && one.kind != Folder {
			return true
		}
	}
	return false
}

func (s *Squashed) covered(at string) bool {
	_, is := s.above.parts[at]
	return is || s.above.gone[at] || s.hidden(at)
}

// remove takes over that the lower layer removes something: of a folder that the upper one has there, only its own is seen.
func (s *Squashed) remove(at string) {
	one, is := s.above.parts[at]
	switch {
	case s.hidden(at) || s.above.gone[at]:
	case is && one.kind == Folder:
		s.opaque[at] = true
	case !is:
		s.gone[at] = true
	}
}

// replaced finds folders of the upper layer that are in the place of a file of the lower one, which hid a folder of the
// image.
func (s *Squashed) replaced() {
	for at, one := range s.above.parts {
		if below, is := s.below.parts[at]; is && one.kind == Folder && below.kind != Folder {
			s.opaque[at] = true
		}
	}
}

// anchor drops marks that mean nothing, and finds the folders of those that may.
func (s *Squashed) anchor(before *Stored) {
	needed := map[string]bool{}
	for at := range s.gone {
		if s.within(at) {
			delete(s.gone, at)
			continue
		}
		_, made := s.below.parts[at]
		folder := path.Dir(at)
		if _, anchored := before.has(folder); made || anchored {
			for ; folder != "/" && !needed[folder]; folder = path.Dir(folder) {
				needed[folder] = true
			}
		}
	}
	s.folders = slices.Sorted(maps.Keys(needed))
}

// within reports whether a folder above a path hides all that is below the layer.
func (s *Squashed) within(at string) bool {
	for at != "/" {
		if at = path.Dir(at); s.opaque[at] {
			return true
		}
	}
	return false
}

// Folders returns the folders that have to be in a layer right below this one, each before those in it; most need none.
func (s *Squashed) Folders() []string { return s.folders }

// WriteFolders writes the layer with these folders alone; what is to be known of them is in the layer above.
func (s *Squashed) WriteFolders(into io.Writer) error {
	archive := tar.NewWriter(into)
	for _, at := range s.folders {
		header := &tar.Header{Typeflag: tar.TypeDir, Name: at[1:] + "/", Mode: 0o755, Format: tar.FormatPAX}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
	}
	return archive.Close()
}

// Size returns the length of the layer, but for few bytes.
func (s *Squashed) Size() int64 {
	size := int64(2*block + block*(len(s.gone)+len(s.opaque)))
	for at, of := range s.of {
		size += of.parts[at].size
	}
	return size
}

// Write writes the layer, at most so many bytes.
func (s *Squashed) Write(ctx context.Context, into io.Writer, most int64) error {
	limited := &sink{to: into, left: most, max: most, path: "/"}
	return limited.judge(s.write(ctx, limited))
}

func (s *Squashed) write(ctx context.Context, into *sink) error {
	places := make(map[string]bool, len(s.of)+len(s.gone))
	for _, all := range []map[string]bool{s.gone, s.opaque} {
		maps.Copy(places, all)
	}
	for at := range s.of {
		places[at] = true
	}
	var links []string
	// A folder comes before what is in it, and a file before the links to it.
	for _, at := range slices.Sorted(maps.Keys(places)) {
		if err := ctx.Err(); err != nil {
			return err
		}
		into.path = at
		of := s.of[at]
		if of != nil && of.parts[at].kind == Hardlink {
			links = append(links, at)
			continue
		}
		if err := s.entry(into, at, of); err != nil {
			return err
		}
	}
	for _, at := range links {
		into.path = at
		if err := s.link(into, at); err != nil {
			return err
		}
	}
	_, err := into.Write(make([]byte, 2*block))
	return err
}

func (s *Squashed) entry(into io.Writer, at string, of *Stored) error {
	if of != nil {
		one := of.parts[at]
		if _, err := io.Copy(into, io.NewSectionReader(of.from, one.at, one.size)); err != nil {
			return err
		}
	} else if s.gone[at] {
		return mark(into, path.Join(path.Dir(at), whiteoutPrefix+path.Base(at)))
	}
	if s.opaque[at] {
		return mark(into, path.Join(at, opaqueName))
	}
	return nil
}

// link writes a hard link, or the file itself where its own path is another's now.
func (s *Squashed) link(into io.Writer, at string) error {
	of := s.of[at]
	file, is := of.file(at)
	if !is {
		return fmt.Errorf("the layer has %.200q, a link to nothing", at)
	}
	if s.of[file] == of {
		one := of.parts[at]
		if of.links[at] == file {
			_, err := io.Copy(into, io.NewSectionReader(of.from, one.at, one.size))
			return err
		}
		return s.relinked(into, at, file)
	}
	if now, is := s.promoted[source{of, file}]; is {
		return s.relinked(into, at, now)
	}
	s.promoted[source{of, file}] = at
	header, content, err := of.read(of.parts[file])
	if err != nil {
		return err
	}
	header.Name, header.Format = at[1:], tar.FormatPAX
	archive := tar.NewWriter(into)
	if err := archive.WriteHeader(header); err != nil {
		return err
	}
	if _, err := io.Copy(archive, content); err != nil {
		return err
	}
	return archive.Flush()
}

func (s *Squashed) relinked(into io.Writer, at, to string) error {
	of := s.of[at]
	header, _, err := of.read(of.parts[at])
	if err != nil {
		return err
	}
	header.Linkname, header.Format = to[1:], tar.FormatPAX
	archive := tar.NewWriter(into)
	if err := archive.WriteHeader(header); err != nil {
		return err
	}
	return archive.Flush()
}

func mark(into io.Writer, at string) error {
	archive := tar.NewWriter(into)
	if err := archive.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: at[1:], Mode: 0o600, Format: tar.FormatPAX}); err != nil {
		return err
	}
	return archive.Flush()
}
