// Package builder builds images from Dockerfiles by BuildKit, as the only program of a sandbox that has no network: the
// control plane brings what a build reads, takes what it has made, and carries what steps with a network connect to. Nothing
// here keeps an owner from anything: code that gets out of a step has the sandbox, which is the owner's, and no way out of
// that but by the owner's policy.
package builder

import (
	"fmt"
	"strconv"
	"time"
)

// Settings of the program, from its environment.
type Settings struct {
	Listen string
	// Token is what a caller has to show.
	Token string
	// State is a folder of a file system that can be the upper layer of an overlay.
	State string
	// InMemory: State is a file system in memory, which is made first.
	InMemory bool
	// MostBytes is what State may have.
	MostBytes int64
	// Idle is how long the program stays without a request: its caller has died.
	Idle time.Duration
}

// SettingError is a setting that is missing or wrong.
type SettingError struct{ Variable, Rule string }

func (e *SettingError) Error() string { return fmt.Sprintf("%s: %s", e.Variable, e.Rule) }

// ReadSettings reads the environment.
func ReadSettings(lookup func(string) (string, bool)) (Settings, error) {
	const prefix = "ROLLBOX_BUILDER_"
	found := Settings{Listen: ":7070", State: "/var/lib/buildkit", Idle: 2 * time.Minute}
	if value, ok := lookup(prefix + "LISTEN"); ok {
		found.Listen = value
	}
	if value, ok := lookup(prefix + "STATE"); ok {
		found.State = value
	}
	if found.Token, _ = lookup(prefix + "TOKEN"); len(found.Token) < 16 {
		return found, &SettingError{prefix + "TOKEN", "has at least 16 characters"}
	}
	value, _ := lookup(prefix + "MOST_BYTES")
	most, err := strconv.ParseInt(value, 10, 64)
	if err != nil || most <= 0 {
		return found, &SettingError{prefix + "MOST_BYTES", "is a number of bytes"}
	}
	found.MostBytes = most
	value, _ = lookup(prefix + "IN_MEMORY")
	found.InMemory = value == "true"
	return found, nil
}
