package peers

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Settings is what the process is told by its environment.
type Settings struct {
	// Self is the address by which other nodes reach this one, HOST:PORT, or :PORT of ROLLBOX_PEERS_HOST; it listens there.
	Self string
	// Members says how the nodes are found: dns:NAME:PORT, all addresses of a name, or a list of addresses.
	Members string
	// Local is the loopback address at which this node's containerd asks.
	Local string
	// Token is what containerd shows.
	Token string
	// TLS is the folder of ca.crt, tls.crt and tls.key, and Name what all nodes' certificates are for.
	TLS  string
	Name string
	// Content is containerd's folder of content.
	Content string
	// Without are beginnings of names of images whose layers nodes do not have, since they are mounted lazily.
	Without []string
	// Sends is how many transfers this node sends at the same time.
	Sends int
	// Metrics is an address for metrics; empty: none.
	Metrics string
	// Level is that of the log.
	Level slog.Level
}

// SettingError is a setting that is missing or invalid: the process exits with status 64.
type SettingError struct{ Variable, Value, Rule string }

func (e *SettingError) Error() string {
	return fmt.Sprintf("%s is %q: %s", e.Variable, e.Value, e.Rule)
}

const (
	prefix       = "ROLLBOX_PEERS_"
	minTokenSize = 16
	maxSends     = 256
	defaultSends = 8
)

// Read takes the settings from an environment such as os.Getenv.
func Read(environ func(string) string) (*Settings, error) {
	var bad error
	check := func(name, value string, good bool, rule string) string {
		if !good && bad == nil {
			bad = &SettingError{prefix + name, value, rule}
		}
		return value
	}
	get := func(name, otherwise string) string {
		if value := environ(prefix + name); value != "" {
			return value
		}
		return otherwise
	}
	// :PORT is one of this node's address, as the chart has it: an IPv6 address has to be put into brackets.
	at := func(address string) string {
		port, found := strings.CutPrefix(address, ":")
		host := net.ParseIP(get("HOST", ""))
		if !found || host == nil {
			return address
		}
		return net.JoinHostPort(host.String(), port)
	}
	self, members, local := at(get("SELF", "")), get("MEMBERS", ""), get("LOCAL", "127.0.0.1:5448")
	folder, content := get("TLS", "/etc/rollbox/tls"), get("CONTENT", "/run/rollbox/content")
	sends, failed := strconv.Atoi(get("SENDS", strconv.Itoa(defaultSends)))
	file := get("TOKEN_FILE", "/etc/rollbox/token/token")
	token, unread := os.ReadFile(file)
	levels := map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}
	level, known := levels[get("LOG", "info")]
	s := &Settings{
		Self:    check("SELF", self, isAddress(self), "the address of this node is needed, such as 10.0.0.7:5447"),
		Members: check("MEMBERS", members, areMembers(members), "dns:NAME:PORT is needed, or addresses with ports, separated by commas"),
		Local:   check("LOCAL", local, isLoopback(local), "a loopback address with a port is needed, such as 127.0.0.1:5448"),
		Token:   strings.TrimSpace(string(token)),
		TLS:     check("TLS", folder, filepath.IsAbs(folder), "an absolute path is needed"),
		Name:    check("NAME", get("NAME", ""), get("NAME", "") != "", "the name in the nodes' certificates is needed"),
		Content: check("CONTENT", content, filepath.IsAbs(content), "an absolute path is needed"),
		Sends:   sends,
		Metrics: at(get("METRICS", "")),
		Level:   level,
	}
	check("TOKEN_FILE", file, unread == nil && len(s.Token) >= minTokenSize, "a file with a token of 16 characters or more is needed")
	check("SENDS", get("SENDS", ""), failed == nil && sends >= 1 && sends <= maxSends, "a whole number from 1 to 256 is needed")
	check("METRICS", s.Metrics, s.Metrics == "" || isAddress(s.Metrics), "an address with a port is needed")
	check("LOG", get("LOG", ""), known, "it is one of debug, info, warn, error")
	if without := get("WITHOUT", ""); without != "" {
		s.Without = strings.Split(without, ",")
	}
	return s, bad
}

func isAddress(text string) bool {
	host, port, err := net.SplitHostPort(text)
	_, bad := strconv.ParseUint(port, 10, 16)
	return err == nil && bad == nil && net.ParseIP(host) != nil
}

func isLoopback(text string) bool {
	host, _, _ := net.SplitHostPort(text)
	return isAddress(text) && net.ParseIP(host).IsLoopback()
}

func areMembers(text string) bool {
	if name, found := strings.CutPrefix(text, "dns:"); found {
		host, port, err := net.SplitHostPort(name)
		_, bad := strconv.ParseUint(port, 10, 16)
		return err == nil && bad == nil && host != ""
	}
	for _, one := range strings.Split(text, ",") {
		if !isAddress(one) {
			return false
		}
	}
	return true
}
