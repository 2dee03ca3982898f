// Package files writes files so that each is there as a whole or not at all, whenever the machine stops.
package files

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// File is one file: its mode and the digest of its content.
type File struct {
	Mode   fs.FileMode `json:"mode"`
	Digest string      `json:"digest"`
}

// Look returns the mode and the digest of a file; nil: there is none.
func Look(path string) (*File, error) {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	about, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !about.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a plain file", path)
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, file); err != nil {
		return nil, err
	}
	return &File{Mode: about.Mode().Perm(), Digest: hex.EncodeToString(sum.Sum(nil))}, nil
}

// Write puts a content in the place of a file, whose folder and, if it is there, owner it keeps. The content has to have
// the digest that is expected; else nothing has changed.
func Write(path string, mode fs.FileMode, digest string, content io.Reader) (err error) {
	folder := filepath.Dir(path)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	if err := Leftover(path); err != nil {
		return err
	}
	made, err := os.OpenFile(beside(path), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = made.Close()
			_ = os.Remove(made.Name())
		}
	}()
	sum := sha256.New()
	if _, err := io.Copy(io.MultiWriter(made, sum), content); err != nil {
		return err
	}
	if found := hex.EncodeToString(sum.Sum(nil)); found != digest {
		return fmt.Errorf("%s would have the digest %.12s, and %.12s is expected", path, found, digest)
	}
	if err := errors.Join(keepOwner(made, path), made.Chmod(mode), made.Sync(), made.Close()); err != nil {
		return err
	}
	if err := os.Rename(made.Name(), path); err != nil {
		return err
	}
	return syncFolder(folder)
}

// beside is where a file is written: one installer at a time writes it.
func beside(path string) string {
	return filepath.Join(filepath.Dir(path), ".rollbox-new-"+filepath.Base(path))
}

// Leftover removes what a Write of this file has left that was stopped.
func Leftover(path string) error { return Remove(beside(path)) }

func keepOwner(made *os.File, path string) error {
	about, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	owner := about.Sys().(*syscall.Stat_t)
	if int(owner.Uid) == os.Geteuid() && int(owner.Gid) == os.Getegid() {
		// Which needs no capability.
		return nil
	}
	return made.Chown(int(owner.Uid), int(owner.Gid))
}

// Remove takes a file away; success if there is none.
func Remove(path string) error {
	if err := os.Remove(path); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	return syncFolder(filepath.Dir(path))
}

func syncFolder(path string) error {
	folder, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}

// Missing are the folders of a file that are not there, the deepest first.
func Missing(path string) (folders []string) {
	for folder := filepath.Dir(path); ; folder = filepath.Dir(folder) {
		if _, err := os.Lstat(folder); !errors.Is(err, fs.ErrNotExist) {
			return folders
		}
		folders = append(folders, folder)
	}
}

// Copy is Write of what another file has.
func Copy(from, to string, about File) error {
	file, err := os.Open(from)
	if err != nil {
		return err
	}
	defer file.Close()
	return Write(to, about.Mode, about.Digest, file)
}

// Put writes a value as JSON.
func Put(path string, value any) error {
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	text = append(text, '\n')
	sum := sha256.Sum256(text)
	return Write(path, 0o644, hex.EncodeToString(sum[:]), bytes.NewReader(text))
}

// Get reads what Put has written; false: there is none.
func Get(path string, value any) (bool, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err == nil {
		err = json.Unmarshal(text, value)
	}
	if err != nil {
		return false, fmt.Errorf("%s: %w", path, err)
	}
	return true, nil
}
