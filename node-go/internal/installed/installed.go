// Package installed is what the installer of a node tells others of it, above all the agent.
package installed

import (
	"os"
	"path/filepath"
	"time"

	"rollbox.dev/node/internal/files"
)

// Runsc names a program among the versions.
const Runsc = "runsc"

// State is how the last run has ended.
type State string

// The states.
const (
	Done    State = "installed"
	AtWork  State = "installing" // or taking away: sandboxes must not start
	Refused State = "refused"
	Failed  State = "failed"
)

// Status is what the installer has done.
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

// File is where the status is in the installer's folder.
func File(folder string) string { return filepath.Join(folder, "status.json") }

// Journal is where a run that has not ended keeps what it has changed.
func Journal(folder string) string { return filepath.Join(folder, "journal.json") }

// Tell writes the status.
func Tell(folder string, status *Status) error { return files.Put(File(folder), status) }

// Read returns the last one; nil: nothing was done here.
func Read(folder string) (*Status, error) {
	found := &Status{}
	there, err := files.Get(File(folder), found)
	if err != nil || !there {
		return nil, err
	}
	return found, nil
}

// Unfinished tells whether a run has not ended, in which nothing is certain.
func Unfinished(folder string) bool {
	_, err := os.Stat(Journal(folder))
	return err == nil
}
