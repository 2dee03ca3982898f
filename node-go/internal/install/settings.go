// Package install puts gVisor, and lazy pulling where it is wanted, on the node that it runs on, and takes them away.
package install

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"time"

	"rollbox.dev/node/internal/install/plan"
)

// Settings is what the installer is told by its environment. All paths are those of the node.
type Settings struct {
	// Containerd is the path of the socket of this node's containerd, Config that of its first settings file.
	Containerd, Config string
	// Supervisor is what keeps services running: systemd, or process.
	Supervisor string
	// Bus is the socket of the node's message bus, Unit the unit of containerd.
	Bus, Unit string
	// Sockets is the folder of the sockets of the snapshotter, which may run from an earlier install.
	Sockets string
	// Payload is the folder of the programs, in the image.
	Payload string
	// Every is how long the installer waits between two looks.
	Every time.Duration
	// Quiet is how long one that stays waits before it changes a node that had sandboxes, so that no new ones come.
	Quiet time.Duration
	// Retry is how long one that stays waits before it tries a plan again that has failed; twice as long after each failure
	// more, up to an hour.
	Retry time.Duration
	// Starts is how long a service may take until it answers.
	Starts time.Duration
	// Limits is the folder of the kernel's settings, as /proc/sys; empty: they are left alone. Sandboxes is how many the node
	// is to hold.
	Limits    string
	Sandboxes int
	// Level is that of the log.
	Level slog.Level
	// Wanted is what the node is to have.
	Wanted plan.Wanted
}

// SettingError is a setting that is missing or invalid: the process exits with status 64.
type SettingError struct{ Variable, Value, Rule string }

func (e *SettingError) Error() string {
	if e.Value == "" {
		return fmt.Sprintf("%s is not set: %s", e.Variable, e.Rule)
	}
	return fmt.Sprintf("%s is %q: %s", e.Variable, e.Value, e.Rule)
}

const prefix = "ROLLBOX_INSTALL_"

var (
	handler = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)
	unit    = regexp.MustCompile(`^[A-Za-z0-9:_.@-]{1,240}\.service$`)
	images  = regexp.MustCompile(`^[a-z0-9][a-z0-9.:_/-]*/$`)
)

// Read takes the settings from an environment such as os.Getenv.
func Read(environ func(string) string) (*Settings, error) {
	read := &reader{environ: environ}
	s := &Settings{
		Containerd: read.path("CONTAINERD", "/run/containerd/containerd.sock"),
		Config:     read.path("CONFIG", "/etc/containerd/config.toml"),
		Supervisor: read.one("KEEPER", "systemd", "systemd", "process"),
		Bus:        read.path("BUS", "/run/dbus/system_bus_socket"),
		Unit:       read.match("UNIT", "containerd.service", unit, "the name of a unit is needed, such as containerd.service"),
		Sockets:    read.path("SNAPSHOTTER_RUN", "/run/rollbox-snapshotter"),
		Payload:    read.path("PAYLOAD", "/payload"),
		Every:      time.Duration(read.number("EVERY_SECONDS", 60, 1, 86400)) * time.Second,
		Quiet:      time.Duration(read.number("QUIET_SECONDS", 45, 0, 600)) * time.Second,
		Retry:      time.Duration(read.number("RETRY_SECONDS", 30, 1, 3600)) * time.Second,
		Starts:     time.Duration(read.number("STARTS_SECONDS", 60, 1, 600)) * time.Second,
		Limits:     read.path("LIMITS", ""),
		Sandboxes:  read.number("SANDBOXES", 256, 1, 100000),
		Level:      read.level("LOG"),
	}
	s.Wanted = plan.Wanted{
		Folder:       read.path("FOLDER", "/opt/rollbox"),
		Units:        read.path("UNITS", "/etc/systemd/system"),
		Handler:      read.match("HANDLER", "runsc", handler, "the name of a runtime handler is needed"),
		Run:          read.path("RUN", "/run/rollbox"),
		Architecture: runtime.GOARCH,
	}
	s.Wanted.Lazy = read.lazy(s)
	if lazy := s.Wanted.Lazy; lazy != nil && lazy.Handler == s.Wanted.Handler {
		read.refuse("LAZY_HANDLER", lazy.Handler, "another name than that of the runtime without lazy pulling is needed")
	}
	if read.err == nil {
		read.err = s.readPayload()
	}
	return s, read.err
}

// readPayload: which programs there are, the image says; that they are what it says is checked when they are written.
func (s *Settings) readPayload() error {
	text, err := os.ReadFile(filepath.Join(s.Payload, "manifest.json"))
	if err == nil {
		err = json.Unmarshal(text, &s.Wanted.Payload)
	}
	for _, name := range []string{plan.Runsc, plan.Shim, plan.Snapshotter, plan.Checker} {
		if err == nil && len(s.Wanted.Payload[name].Digest) != 64 {
			err = fmt.Errorf("it has no digest of %s", name)
		}
	}
	if err != nil {
		return &SettingError{prefix + "PAYLOAD", s.Payload, fmt.Sprintf("a folder with the programs and manifest.json is needed (%v)", err)}
	}
	return nil
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
	if !filepath.IsAbs(value) || filepath.Clean(value) != value || strings.ContainsAny(value, "\n\"'\\ ") {
		r.refuse(name, value, "an absolute path without ., .., spaces and quotes is needed")
	}
	return value
}

func (r *reader) match(name, otherwise string, form *regexp.Regexp, rule string) string {
	value := r.environ(prefix + name)
	if value == "" {
		return otherwise
	}
	if !form.MatchString(value) {
		r.refuse(name, value, rule)
	}
	return value
}

func (r *reader) one(name, otherwise string, of ...string) string {
	value := r.environ(prefix + name)
	if value == "" {
		return otherwise
	}
	for _, each := range of {
		if value == each {
			return value
		}
	}
	r.refuse(name, value, "it is one of "+strings.Join(of, ", "))
	return value
}

func (r *reader) number(name string, otherwise, least, most int) int {
	value := r.environ(prefix + name)
	if value == "" {
		return otherwise
	}
	number, err := strconv.Atoi(value)
	if err != nil || number < least || number > most {
		r.refuse(name, value, fmt.Sprintf("a whole number from %d to %d is needed", least, most))
	}
	return number
}

func (r *reader) level(name string) (level slog.Level) {
	if err := level.UnmarshalText([]byte(r.one(name, "info", "debug", "info", "warn", "error"))); err != nil {
		r.refuse(name, r.environ(prefix+name), "it is one of debug, info, warn, error")
	}
	return level
}

// lazy is not wanted without a handler for it.
func (r *reader) lazy(s *Settings) *plan.Lazy {
	found := &plan.Lazy{
		Handler: r.match("LAZY_HANDLER", "", handler, "the name of a runtime handler is needed"), Snapshotter: "lazy",
		Run:        s.Sockets,
		Root:       r.path("SNAPSHOTTER_ROOT", "/var/lib/rollbox-snapshotter"),
		Registries: r.path("REGISTRIES", filepath.Join(filepath.Dir(s.Config), "certs.d")),
	}
	value := r.environ(prefix + "LAZY_IMAGES")
	if found.Handler == "" {
		return nil
	}
	for _, one := range strings.Split(value, ",") {
		if !images.MatchString(one) {
			r.refuse("LAZY_IMAGES", value, "beginnings of names of images are needed, separated by commas, each with a slash at its end")
		}
		found.Images = append(found.Images, one)
	}
	return found
}
