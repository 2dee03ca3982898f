package collector

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"time"
)

const prefix = "ROLLBOX_COLLECTOR_"

// Settings are a collector's settings.
type Settings struct {
	Listen    string
	TLSFolder string // tls.crt, tls.key, and ca.crt, which has signed the client's certificate
	Client    string // the name in the certificate of the only client
	Folder    string // the registry's `rootdirectory`
	Capacity  int64  // bytes that the registry may have of its volume; 0: all
	// Usual and Urgent are the package's, but for the times that are set, as tests do: too short ones lose images.
	Usual, Urgent Pace
}

// SettingError names a variable, its value, and the rule that it breaks.
type SettingError struct{ Variable, Value, Rule string }

func (e *SettingError) Error() string {
	return fmt.Sprintf("%s is %q: %s", e.Variable, e.Value, e.Rule)
}

// ReadSettings reads environment variables.
func ReadSettings(lookup func(string) (string, bool)) (Settings, error) {
	var wrong error
	read := func(variable, otherwise string, check func(string) error) string {
		value, _ := lookup(prefix + variable)
		if value == "" {
			value = otherwise
		}
		if err := check(value); err != nil && wrong == nil {
			wrong = &SettingError{prefix + variable, value, err.Error()}
		}
		return value
	}
	settings := Settings{
		Listen:    read("LISTEN", "0.0.0.0:5446", address),
		TLSFolder: read("TLS_FOLDER", "", folder),
		Client:    read("CLIENT", "", filled),
		Folder:    read("FOLDER", "", folder),
	}
	settings.Capacity, _ = strconv.ParseInt(read("CAPACITY_BYTES", "0", count), 10, 64)
	settings.Usual, settings.Urgent = Usual, Urgent
	for variable, times := range map[string][2]*time.Duration{
		"YOUNG_MS":  {&settings.Usual.Young, &settings.Urgent.Young},
		"SETTLE_MS": {&settings.Usual.Settle, &settings.Urgent.Settle},
		"IDLE_MS":   {&settings.Usual.Idle, &settings.Urgent.Idle},
	} {
		if ms, _ := strconv.ParseInt(read(variable, "0", count), 10, 64); ms > 0 {
			*times[0], *times[1] = time.Duration(ms)*time.Millisecond, time.Duration(ms)*time.Millisecond
		}
	}
	return settings, wrong
}

func address(text string) error {
	if _, port, err := net.SplitHostPort(text); err != nil || port == "" {
		return fmt.Errorf("must be host:port")
	}
	return nil
}

func filled(text string) error {
	if text == "" {
		return fmt.Errorf("must not be empty")
	}
	return nil
}

func folder(text string) error {
	if found, err := os.Stat(text); err != nil || !found.IsDir() {
		return fmt.Errorf("must name a folder that exists")
	}
	return nil
}

func count(text string) error {
	if number, err := strconv.ParseInt(text, 10, 64); err != nil || number < 0 {
		return fmt.Errorf("must be a whole number, 0 for the default")
	}
	return nil
}
