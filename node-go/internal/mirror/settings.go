package mirror

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
)

const prefix = "ROLLBOX_MIRROR_"

// Settings are a mirror's settings.
type Settings struct {
	Listen, Metrics string
	TLSFolder       string // tls.crt, tls.key, and ca.crt, which has signed the client's certificate
	Client          string // the name in the certificate of the only client
	Registry        string
	RegistryCA      string // a file; empty: the system's certificates
	RegistryAccount string // a file with USER:PASSWORD
	// Commits is where agents put images of sandboxes, each with a token; empty: elsewhere. The file CommitsCertificate is
	// of what signs the tokens.
	Commits, CommitsCertificate string
	PlainRegistries             []string
	Copies, Layers              int
	MaxImageBytes               int64
	Stall                       time.Duration
	Folder                      string
	// Memory is what the process may take. A conversion gets half of it; images that need more are not converted.
	Memory int64
	// Scratch is the room in Folder; images that need more are not converted.
	Scratch int64
}

// SettingError names a variable, its value, and the rule that it breaks.
type SettingError struct{ Variable, Value, Rule string }

func (e *SettingError) Error() string {
	return fmt.Sprintf("%s is %q: %s", e.Variable, e.Value, e.Rule)
}

// ReadSettings reads environment variables.
func ReadSettings(lookup func(string) (string, bool)) (Settings, error) {
	read := reader{lookup: lookup}
	settings := Settings{
		Listen:          read.checked("LISTEN", "0.0.0.0:8085", address),
		Metrics:         read.checked("METRICS", "0.0.0.0:8086", address),
		TLSFolder:       read.checked("TLS_FOLDER", "", folder),
		Client:          read.checked("CLIENT", "rollbox-controlplane", filled),
		Registry:        read.checked("REGISTRY", "", registryHost),
		RegistryCA:      read.optional("REGISTRY_CA", file),
		RegistryAccount: read.checked("REGISTRY_ACCOUNT_FILE", "", file),
		Commits:         read.optional("COMMITS", address),
		PlainRegistries: read.list("PLAIN_HTTP_REGISTRIES", registryHost),
		Copies:          int(read.count("COPIES_AT_ONCE", "4", 1, 64)),
		Layers:          int(read.count("LAYERS_AT_ONCE", "3", 1, 16)),
		MaxImageBytes:   read.count("MAX_IMAGE_BYTES", "68719476736", 0, 1<<50),
		Stall:           time.Duration(read.count("STALL_MS", "30000", 100, 600_000)) * time.Millisecond,
		Folder:          read.checked("FOLDER", os.TempDir(), folder),
		Memory:          read.count("MEMORY_BYTES", "1073741824", 1<<20, 1<<44),
		Scratch:         read.count("SCRATCH_BYTES", "17179869184", 1<<20, 1<<50),
	}
	if settings.Commits != "" {
		settings.CommitsCertificate = read.checked("COMMITS_CERTIFICATE", "", file)
	}
	return settings, read.err
}

type reader struct {
	lookup func(string) (string, bool)
	err    error
}

func (r *reader) checked(variable, otherwise string, check func(string) error) string {
	value, there := r.lookup(prefix + variable)
	if !there || value == "" {
		value = otherwise
	}
	r.judge(variable, value, check(value))
	return value
}

func (r *reader) optional(variable string, check func(string) error) string {
	if value, _ := r.lookup(prefix + variable); value == "" {
		return ""
	}
	return r.checked(variable, "", check)
}

func (r *reader) list(variable string, check func(string) error) []string {
	text, _ := r.lookup(prefix + variable)
	var found []string
	for one := range strings.SplitSeq(text, ",") {
		if one = strings.TrimSpace(one); one != "" {
			r.judge(variable, one, check(one))
			found = append(found, one)
		}
	}
	return found
}

func (r *reader) count(variable, otherwise string, least, most int64) int64 {
	text := r.checked(variable, otherwise, func(string) error { return nil })
	number, err := strconv.ParseInt(text, 10, 64)
	if err != nil || number < least || number > most {
		r.judge(variable, text, fmt.Errorf("must be a whole number from %d to %d", least, most))
	}
	return number
}

func (r *reader) judge(variable, value string, err error) {
	if err != nil && r.err == nil {
		r.err = &SettingError{prefix + variable, value, err.Error()}
	}
}

func address(text string) error {
	if _, port, err := net.SplitHostPort(text); err != nil || port == "" {
		return fmt.Errorf("must be host:port")
	}
	return nil
}

func filled(text string) error {
	if strings.TrimSpace(text) == "" {
		return fmt.Errorf("must not be empty")
	}
	return nil
}

func registryHost(text string) error {
	if text == "" || strings.Contains(text, "/") {
		return fmt.Errorf("must be the host of a registry, and perhaps a port")
	}
	if _, err := name.NewRegistry(text, name.StrictValidation); err != nil {
		return fmt.Errorf("must be the host of a registry, and perhaps a port")
	}
	return nil
}

func file(text string) error {
	if found, err := os.Stat(text); err != nil || found.IsDir() {
		return fmt.Errorf("must name a file that exists")
	}
	return nil
}

func folder(text string) error {
	if found, err := os.Stat(text); err != nil || !found.IsDir() {
		return fmt.Errorf("must name a folder that exists")
	}
	return nil
}
