package apply

import (
	"errors"
	"os"
	"time"

	"rollbox.dev/node/internal/install/files"
	"rollbox.dev/node/internal/install/plan"
)

// State is how the last run has ended.
type State string

// The states.
const (
	Installed  State = "installed"
	Installing State = "installing" // or taking away: sandboxes must not start
	Refused    State = "refused"
	Failed     State = "failed"
)

// Status is what the installer tells others, above all the agent of its node.
type Status struct {
	State  State  `json:"state"`
	Code   string `json:"code,omitempty"`
	Detail string `json:"detail,omitempty"`
	// Plan is the digest of the last plan that failed, Failures how often in a row, FailedAt when it did last.
	Plan     string    `json:"plan,omitempty"`
	Failures int       `json:"failures,omitempty"`
	FailedAt time.Time `json:"failed_at,omitzero"`
	// Versions are those of the programs, by name.
	Versions map[string]string `json:"versions,omitempty"`
	// Lazy tells whether lazy pulling was installed.
	Lazy bool      `json:"lazy,omitempty"`
	At   time.Time `json:"at"`
}

// Tell writes the status.
func (s *Store) Tell(status *Status) error { return files.Put(s.statusFile(), status) }

// Status returns the last one; nil: nothing was done here.
func (s *Store) Status() (*Status, error) {
	found := &Status{}
	there, err := files.Get(s.statusFile(), found)
	if err != nil || !there {
		return nil, err
	}
	return found, nil
}

// VersionsOf a payload.
func VersionsOf(payload map[string]plan.Program) map[string]string {
	versions := map[string]string{}
	for name, program := range payload {
		versions[name] = program.Version
	}
	return versions
}

// Forget removes the status, and the folder if nothing else is in it.
func (s *Store) Forget() error {
	// A run that was stopped before its journal was written has left these.
	err := errors.Join(
		os.RemoveAll(s.undoFolder()), files.Leftover(s.journalFile()), files.Remove(s.statusFile()), files.Remove(s.askedFile()),
	)
	if err != nil {
		return err
	}
	leave([]string{s.Folder})
	return nil
}

// Unfinished tells whether a run has not ended, in which nothing is certain.
func (s *Store) Unfinished() bool {
	_, err := os.Stat(s.journalFile())
	return err == nil
}
