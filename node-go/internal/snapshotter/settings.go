// Package snapshotter mounts image layers of the eStargz form from the registry while they are still being fetched.
//
// It has two processes. The one that containerd talks to (Serve) keeps what snapshots there are; the other (Mounts)
// serves the files of the mounted layers, and is left running when the first one is restarted or replaced, since every
// running sandbox reads its files through it.
package snapshotter

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/log"
)

// Settings is what both processes are told by their environment.
type Settings struct {
	// Socket is where containerd reaches the snapshotter.
	Socket string
	// MountsSocket is where the snapshotter reaches the process that serves the mounts.
	MountsSocket string
	// Root is the folder of snapshots and of what has been fetched.
	Root string
	// Registries is containerd's folder of registry hosts (certs.d); see credentials.go.
	Registries string
	// Trusted are the beginnings of the names of images that may be mounted lazily.
	Trusted []string
	// Metrics is a loopback address for Serve, MountsMetrics one for Mounts; empty: none.
	Metrics, MountsMetrics string
	// Accesses is a file to which the first access to each file of each layer is appended; empty: none.
	Accesses string
	// Level is that of the log.
	Level string
}

// SettingError is a setting that is missing or invalid: the process exits with status 64.
type SettingError struct{ Variable, Value, Rule string }

func (e *SettingError) Error() string {
	if e.Value == "" {
		return fmt.Sprintf("%s is not set: %s", e.Variable, e.Rule)
	}
	return fmt.Sprintf("%s is %q: %s", e.Variable, e.Value, e.Rule)
}

const prefix = "ROLLBOX_SNAPSHOTTER_"

// Read takes the settings from an environment such as os.Getenv.
func Read(environ func(string) string) (*Settings, error) {
	s := &Settings{}
	read := reader{environ: environ}
	s.Socket = read.path("SOCKET", "/run/rollbox-snapshotter/snapshotter.sock")
	s.MountsSocket = read.path("MOUNTS_SOCKET", "/run/rollbox-snapshotter/mounts.sock")
	s.Root = read.path("ROOT", "/var/lib/rollbox-snapshotter")
	s.Registries = read.path("REGISTRIES", "/etc/containerd/certs.d")
	s.Trusted = read.trusted("TRUSTED")
	s.Metrics = read.loopback("METRICS")
	s.MountsMetrics = read.loopback("MOUNTS_METRICS")
	s.Accesses = read.path("ACCESSES", "")
	s.Level = read.level("LOG", "info")
	if read.err == nil && s.Socket == s.MountsSocket {
		read.refuse("MOUNTS_SOCKET", s.MountsSocket, "it has to differ from "+prefix+"SOCKET")
	}
	return s, read.err
}

type reader struct {
	environ func(string) string
	err     error
}

// refuse keeps the first problem.
func (r *reader) refuse(name, value, rule string) {
	if r.err == nil {
		r.err = &SettingError{prefix + name, value, rule}
	}
}

func (r *reader) path(name, otherwise string) string {
	value := r.environ(prefix + name)
	if value == "" {
		return otherwise
	}
	if !filepath.IsAbs(value) || filepath.Clean(value) != value {
		r.refuse(name, value, "an absolute path without . and .. is needed")
	}
	// What the kernel takes for the address of a Unix socket.
	if strings.HasSuffix(name, "SOCKET") && len(value) > 107 {
		r.refuse(name, value, "the path of a socket has at most 107 bytes")
	}
	return value
}

// trusted: a whole registry or repositories in it, never a part of a name: `host/team` must not let `host/team-2` in.
func (r *reader) trusted(name string) []string {
	value := r.environ(prefix + name)
	rule := "the beginnings of the names of images that may be mounted lazily are needed, separated by commas, each with" +
		" its registry and a slash at its end: registry.example.com/estargz/"
	var found []string
	for one := range strings.SplitSeq(value, ",") {
		one = strings.TrimSpace(one)
		host, _, ok := strings.Cut(one, "/")
		if !ok || !strings.HasSuffix(one, "/") || !(strings.ContainsAny(host, ".:") || host == "localhost") {
			r.refuse(name, value, rule)
			return nil
		}
		if !slices.Contains(found, one) {
			found = append(found, one)
		}
	}
	return found
}

func (r *reader) loopback(name string) string {
	value := r.environ(prefix + name)
	if value == "" {
		return ""
	}
	host, _, err := net.SplitHostPort(value)
	if ip := net.ParseIP(host); err != nil || ip == nil || !ip.IsLoopback() {
		r.refuse(name, value, "a loopback address and a port are needed, such as 127.0.0.1:9810")
	}
	return value
}

func (r *reader) level(name, otherwise string) string {
	value := r.environ(prefix + name)
	if value == "" {
		return otherwise
	}
	if levels := []string{"debug", "info", "warn", "error"}; !slices.Contains(levels, value) {
		r.refuse(name, value, "it is one of "+strings.Join(levels, ", "))
	}
	return value
}

// logTo sets up the process's log: JSON lines on the standard error.
func (s *Settings) logTo() error {
	log.L.Logger.SetOutput(os.Stderr)
	if err := log.SetFormat(log.JSONFormat); err != nil {
		return err
	}
	return log.SetLevel(s.Level)
}
