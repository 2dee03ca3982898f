package apply

import (
	"errors"
	"os"

	"rollbox.dev/node/internal/files"
	"rollbox.dev/node/internal/install/plan"
)

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
