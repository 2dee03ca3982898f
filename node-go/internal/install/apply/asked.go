package apply

import (
	"os"

	"rollbox.dev/node/internal/files"
	"rollbox.dev/node/internal/installed"
)

// Ask has an installer that stays look at once, and try what has failed before.
func (s *Store) Ask() error { return files.Put(s.askedFile(), struct{}{}) }

// Asked tells whether somebody has asked.
func (s *Store) Asked() bool {
	_, err := os.Stat(s.askedFile())
	return err == nil
}

// Heed is Asked, which is false from then on. What had failed counts for nothing any more.
func (s *Store) Heed() (bool, error) {
	if !s.Asked() {
		return false, nil
	}
	found, err := installed.Read(s.Folder)
	if err != nil {
		return false, err
	}
	if found != nil {
		found.Plan, found.Failures = "", 0
		if err := installed.Tell(s.Folder, found); err != nil {
			return false, err
		}
	}
	return true, files.Remove(s.askedFile())
}

// Left is a run that has not ended: what it may have changed so far.
type Left struct {
	Files    []string `json:"files"`
	Services []string `json:"services"`
}

// Left returns the run that the next one undoes before it makes its plan; nil: there is none.
func (s *Store) Left() (*Left, error) {
	found, err := s.open()
	if err != nil || found == nil {
		return nil, err
	}
	told := &Left{Files: []string{}, Services: append([]string{}, found.Services...)}
	for _, one := range found.Entries {
		told.Files = append(told.Files, one.Path)
	}
	return told, nil
}
