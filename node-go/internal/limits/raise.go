package limits

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"rollbox.dev/node/internal/files"
)

// Raised is a setting that was changed: what somebody else had set last, and what was written since.
type Raised struct {
	Before uint64 `json:"before"`
	Set    uint64 `json:"set"`
}

// Raise raises what is too low and not somebody else's. What was there is kept in record, a file, before it is changed. Safe
// to call again: what is high enough is not touched. It goes on after a setting that cannot be changed.
//
// Errors: of the settings that could not be changed; those are as they were.
func Raise(root string, sandboxes int, record string) (done []Low, err error) {
	low, err := Look(root, sandboxes)
	for _, one := range low {
		if one.To == 0 {
			continue
		}
		if failed := raise(root, one, record); failed != nil {
			err = errors.Join(err, fmt.Errorf("raise %s: %w", one.Name, failed))
			continue
		}
		done = append(done, one)
	}
	return done, err
}

func raise(root string, one Low, record string) error {
	known, err := recorded(record)
	if err != nil {
		return err
	}
	before, ours := known[one.Name]
	// A value that is not the one written last is somebody else's, such as an administrator's after a reboot.
	if !ours || one.Is != before.Set {
		before.Before = one.Is
	}
	known[one.Name] = Raised{Before: before.Before, Set: one.To}
	if err := files.Put(record, known); err != nil {
		return err
	}
	return write(root, one.Name, one.To)
}

// Restore gives all settings the values that somebody else had set last, but those that somebody else has changed since
// the last Raise, and removes the record. Success if nothing was raised.
//
// Errors: of the settings that could not be changed; the record stays then.
func Restore(root, record string) (done []string, err error) {
	known, err := recorded(record)
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(known)) {
		is, failed := read(root, name)
		if failed == nil && is == known[name].Set {
			failed = write(root, name, known[name].Before)
			done = append(done, name)
		}
		if failed != nil {
			err = errors.Join(err, fmt.Errorf("restore %s: %w", name, failed))
		}
	}
	if err != nil {
		return done, err
	}
	return done, files.Remove(record)
}

func recorded(record string) (map[string]Raised, error) {
	known := map[string]Raised{}
	_, err := files.Get(record, &known)
	return known, err
}
