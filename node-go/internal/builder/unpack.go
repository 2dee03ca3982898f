package builder

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"
)

// unpack reads an archive: what is in the folder `mark` goes to one place, and all else to another. The time of a file is that
// of the archive, and as many nanoseconds as builds were here: BuildKit takes a file for the one of an earlier build that has
// its name, size and time, and no image has parts of a second.
func unpack(from io.Reader, mark string, number int, marked, rest *os.Root) error {
	archive := tar.NewReader(from)
	for {
		entry, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("the archive: %w", err)
		}
		to, name := rest, path.Clean(entry.Name)
		if inside, ok := strings.CutPrefix(name, mark+"/"); ok {
			to, name = marked, inside
		}
		entry.ModTime = entry.ModTime.Truncate(time.Second).Add(time.Duration(number))
		if err := put(to, name, entry, archive); err != nil {
			return fmt.Errorf("%q: %w", entry.Name, err)
		}
	}
}

// put makes what an entry is. The folder refuses what would be outside of it.
func put(to *os.Root, name string, entry *tar.Header, content io.Reader) error {
	if name == "." {
		return nil
	}
	if err := to.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	mode := fs.FileMode(entry.Mode).Perm()
	switch entry.Typeflag {
	case tar.TypeDir:
		return to.MkdirAll(name, mode)
	case tar.TypeSymlink:
		return to.Symlink(entry.Linkname, name)
	case tar.TypeReg:
		return file(to, name, mode, entry.ModTime, content)
	default:
		return errors.New("is no file, folder or link")
	}
}

func file(to *os.Root, name string, mode fs.FileMode, at time.Time, content io.Reader) error {
	made, err := to.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(made, content)
	if err = errors.Join(err, made.Close()); err != nil {
		return err
	}
	return to.Chtimes(name, at, at)
}
