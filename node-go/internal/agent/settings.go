// Package agent is the node agent: a gRPC server on one node whose only client is the control plane.
package agent

import (
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Settings is what the agent is told by its environment.
type Settings struct {
	// Node is the name of this node in the cluster.
	Node string
	// Listen is the address of the server, host:port.
	Listen string
	// Containerd is the path of the socket of this node's containerd.
	Containerd string
	// TLS is the folder of ca.crt, tls.crt and tls.key.
	TLS string
	// Client is the name in the only certificate that may call.
	Client string
	// Namespace is that of the sandboxes' pods; no other pod is ever touched.
	Namespace string
	// Handlers are the runtime handlers of the sandboxes; the first is that of most of them.
	Handlers []string
	// DeviceHandler is that of sandboxes with devices, which not every node has; empty: it is one of the above.
	DeviceHandler string
	// Images is a folder on the file system that images are on; empty: its room is not told.
	Images string
	// Installed is the folder in which the node's installer keeps what it has done; empty: there is no installer.
	Installed string
	// Mounts is the socket of the process that serves lazily mounted files; empty: it is not looked at.
	Mounts string
	// Runsc is the folder of the control sockets of this node's gVisor kernels; empty: no images are made of sandboxes.
	Runsc string
	// Spool is the folder in which images wait that are made of sandboxes, and SpoolGibibytes what they may take there.
	Spool          string
	SpoolGibibytes int
	// Sandboxes is how many the node is to hold: settings of the kernel that are lower than these need are told.
	Sandboxes int
	// Memory is what the process may take (bytes): it says how many files an image of a sandbox may have.
	Memory int64
	// Pulls is how many images are pulled at once.
	Pulls int
	// Metrics is the address at which they are told, host:port; empty: nowhere.
	Metrics string
	// Grace is how long calls may go on when the agent is told to end.
	Grace time.Duration
	// Level is that of the log.
	Level slog.Level
}

// SettingError is a setting that is missing or invalid: the process exits with status 64.
type SettingError struct{ Variable, Value, Rule string }

func (e *SettingError) Error() string {
	if e.Value == "" {
		return fmt.Sprintf("%s is not set: %s", e.Variable, e.Rule)
	}
	return fmt.Sprintf("%s is %q: %s", e.Variable, e.Value, e.Rule)
}

const prefix = "ROLLBOX_NODE_"

// Names of Kubernetes: labels, and subdomains of them.
var (
	label     = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)
	subdomain = regexp.MustCompile(`^[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?$`)
)

// Read takes the settings from an environment such as os.Getenv.
func Read(environ func(string) string) (*Settings, error) {
	read := reader{environ: environ}
	s := &Settings{
		Node:       read.name("NAME", subdomain, "the name of this node is needed"),
		Listen:     read.address("LISTEN", ":8443"),
		Containerd: read.path("CONTAINERD", "/run/containerd/containerd.sock"),
		TLS:        read.path("TLS", "/etc/rollbox/tls"),
		Client:     read.name("CLIENT", subdomain, "the name in the certificate of the control plane is needed"),
		Namespace:  read.name("NAMESPACE", label, "the namespace of the sandboxes is needed"),
		Handlers:   read.names("HANDLERS", label, "the runtime handlers of the sandboxes are needed, separated by commas"),
		Images:     read.path("IMAGES", ""),
		Installed:  read.path("INSTALLED", ""),
		Mounts:     read.path("MOUNTS", ""),
		Runsc:      read.path("RUNSC", ""),
		Metrics:    read.address("METRICS", ""),
		Spool:      read.path("SPOOL", "/tmp"),
		Pulls:      read.number("PULLS", 2, 1, 64),
		Grace:      time.Duration(read.number("GRACE_SECONDS", 10, 1, 600)) * time.Second,
		Level:      read.level("LOG"),

		Sandboxes:      read.number("SANDBOXES", 256, 1, 100000),
		DeviceHandler:  read.optional("DEVICE_HANDLER", label, "it is the name of a runtime handler"),
		SpoolGibibytes: read.number("SPOOL_GIBIBYTES", 16, 1, 1<<20),
		Memory:         int64(read.number("MEMORY_BYTES", 512<<20, 1<<20, 1<<44)),
	}
	return s, read.err
}

// workedOn are the handlers of all sandboxes.
func (s *Settings) workedOn() []string {
	if s.DeviceHandler == "" {
		return s.Handlers
	}
	return append(slices.Clone(s.Handlers), s.DeviceHandler)
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

func (r *reader) name(name string, form *regexp.Regexp, rule string) string {
	value := r.environ(prefix + name)
	if !form.MatchString(value) {
		r.refuse(name, value, rule)
	}
	return value
}

func (r *reader) optional(name string, form *regexp.Regexp, rule string) string {
	if r.environ(prefix+name) == "" {
		return ""
	}
	return r.name(name, form, rule)
}

func (r *reader) names(name string, form *regexp.Regexp, rule string) []string {
	value := r.environ(prefix + name)
	found := strings.Split(value, ",")
	for _, one := range found {
		if !form.MatchString(one) {
			r.refuse(name, value, rule)
		}
	}
	return found
}

func (r *reader) address(name, otherwise string) string {
	value := r.environ(prefix + name)
	if value == "" {
		return otherwise
	}
	host, port, err := net.SplitHostPort(value)
	_, bad := strconv.ParseUint(port, 10, 16)
	if err != nil || bad != nil || host != "" && net.ParseIP(host) == nil {
		r.refuse(name, value, "an IP address and a port are needed, such as 0.0.0.0:8443, or :8443 for all addresses; port 0 is any that is free")
	}
	return value
}

func (r *reader) path(name, otherwise string) string {
	value := r.environ(prefix + name)
	if value == "" {
		return otherwise
	}
	if !filepath.IsAbs(value) || filepath.Clean(value) != value {
		r.refuse(name, value, "an absolute path without . and .. is needed")
	}
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

func (r *reader) level(name string) slog.Level {
	value := r.environ(prefix + name)
	levels := map[string]slog.Level{
		"": slog.LevelInfo, "debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError,
	}
	level, known := levels[value]
	if !known {
		r.refuse(name, value, "it is one of debug, info, warn, error")
	}
	return level
}
