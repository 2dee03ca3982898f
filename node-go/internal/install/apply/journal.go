// Package apply does what a plan says, and undoes it when it cannot be finished: at once, or at the next start where the
// machine or the installer itself was stopped in between.
package apply

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"rollbox.dev/node/internal/files"
	"rollbox.dev/node/internal/install/config"
	"rollbox.dev/node/internal/install/plan"
	"rollbox.dev/node/internal/installed"
)

// journal is what is needed to undo one run. It is on the disk before the first change, and removed after the last.
type journal struct {
	// Entries are the files that the run changes, as they were.
	Entries []entry `json:"entries"`
	// Folders are those that were not there, the deepest first.
	Folders []string `json:"folders"`
	// Services are those that the run has touched so far, and Had those that were provided before it.
	Services []string `json:"services"`
	Had      []string `json:"had"`

	store *Store
}

type entry struct {
	Path   string     `json:"path"`
	Before *plan.File `json:"before,omitempty"`
	Backup string     `json:"backup,omitempty"`
	// After is the digest that the run gives it; empty: it removes it. Whose file has another is somebody else's.
	After string `json:"after,omitempty"`
	// Import is what is taken out of a file that somebody has changed meanwhile.
	Import string `json:"import,omitempty"`
}

// Store is the installer's folder of what it has done: record, journal and what files were.
type Store struct{ Folder string }

func (s *Store) recordFile() string  { return filepath.Join(s.Folder, "record.json") }
func (s *Store) journalFile() string { return installed.Journal(s.Folder) }
func (s *Store) statusFile() string  { return installed.File(s.Folder) }
func (s *Store) askedFile() string   { return filepath.Join(s.Folder, "asked.json") }
func (s *Store) undoFolder() string  { return filepath.Join(s.Folder, "undo") }
func (s *Store) originals() string   { return filepath.Join(s.Folder, "originals") }
func (s *Store) original(path string) string {
	sum := sha256.Sum256([]byte(path))
	return filepath.Join(s.originals(), hex.EncodeToString(sum[:8]))
}

// recorded is the record, and the folders that installs have made.
type recorded struct {
	plan.Record
	Folders []string `json:"folders"`
}

// Record returns what earlier runs have done.
func (s *Store) Record() (plan.Record, error) {
	found, err := s.recorded()
	return found.Record, err
}

func (s *Store) recorded() (*recorded, error) {
	found := &recorded{}
	_, err := files.Get(s.recordFile(), found)
	if found.Files == nil {
		found.Files = map[string]plan.Owned{}
	}
	return found, err
}

// begin keeps what the plan's files are.
func (s *Store) begin(steps plan.Plan) (*journal, error) {
	// What a run has left that was stopped before its journal was written: nothing had changed then.
	if err := os.RemoveAll(s.undoFolder()); err != nil {
		return nil, err
	}
	before, err := s.recorded()
	if err != nil {
		return nil, err
	}
	made := &journal{Had: before.Services, store: s}
	paths := append(targets(steps), s.recordFile())
	for _, path := range paths {
		for _, folder := range files.Missing(path) {
			made.Folders = with(made.Folders, folder)
		}
	}
	sortDeepest(made.Folders)
	for _, path := range paths {
		kept, err := s.keep(path, len(made.Entries))
		if err != nil {
			return nil, err
		}
		made.Entries = append(made.Entries, kept)
	}
	for i := range made.Entries {
		if err := made.Entries[i].expect(steps); err != nil {
			return nil, err
		}
	}
	return made, made.save()
}

func (e *entry) expect(steps plan.Plan) error {
	for _, step := range steps {
		if step.Target != e.Path {
			continue
		}
		e.After = step.Digest
		if step.Shared {
			e.Import = plan.AdditionPath(e.Path)
		}
		if step.Do == plan.Write && (e.Before == nil) != (step.From == "") || e.Before != nil && step.From != "" && e.Before.Digest != step.From {
			return fmt.Errorf("%s was changed by somebody else since the plan was made", e.Path)
		}
	}
	return nil
}

func targets(steps plan.Plan) (paths []string) {
	for _, step := range steps {
		if step.Do == plan.Write || step.Do == plan.Restore || step.Do == plan.Remove {
			paths = append(paths, step.Target)
		}
	}
	return paths
}

func (s *Store) keep(path string, number int) (entry, error) {
	before, err := files.Look(path)
	if err != nil || before == nil {
		return entry{Path: path}, err
	}
	backup := filepath.Join(s.undoFolder(), fmt.Sprint(number))
	return entry{Path: path, Before: before, Backup: backup}, files.Copy(path, backup, *before)
}

func (j *journal) save() error { return files.Put(j.store.journalFile(), j) }

// touch notes that a service is about to be changed.
func (j *journal) touch(service string) error {
	if slices.Contains(j.Services, service) {
		return nil
	}
	j.Services = append(j.Services, service)
	return j.save()
}

// open returns the journal of a run that was not finished; nil: there is none.
func (s *Store) open() (*journal, error) {
	found := &journal{store: s}
	there, err := files.Get(s.journalFile(), found)
	if err != nil || !there {
		return nil, err
	}
	return found, nil
}

// restore puts every file back that is as the run has left it.
func (j *journal) restore() error {
	var failed []error
	for _, one := range slices.Backward(j.Entries) {
		failed = append(failed, files.Leftover(one.Path), j.restoreOne(one))
	}
	return errors.Join(failed...)
}

func (j *journal) restoreOne(one entry) error {
	is, err := files.Look(one.Path)
	if err != nil {
		return err
	}
	if one.Import != "" && is != nil && is.Digest != one.After && (one.Before == nil || is.Digest != one.Before.Digest) {
		return takeOut(one, is.Mode)
	}
	switch {
	case one.Before == nil:
		return files.Remove(one.Path)
	case is == nil || *is != *one.Before:
		return files.Copy(one.Backup, one.Path, *one.Before)
	}
	return nil
}

// takeOut leaves the changes of others in a shared file.
func takeOut(one entry, mode fs.FileMode) error {
	text, err := os.ReadFile(one.Path)
	if err != nil {
		return err
	}
	without := config.WithoutImport(text, one.Import)
	return files.Write(one.Path, mode, plan.Digest(without), bytes.NewReader(without))
}

// end forgets the run.
func (j *journal) end() error {
	return errors.Join(
		files.Leftover(j.store.journalFile()), files.Remove(j.store.journalFile()), os.RemoveAll(j.store.undoFolder()),
	)
}

// leave removes folders that were made for files, as far as nothing is in them.
func leave(folders []string) {
	for _, folder := range folders {
		_ = os.Remove(folder)
	}
}
