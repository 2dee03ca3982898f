package agent

import (
	"errors"
	"log/slog"
	"reflect"
	"testing"
	"time"
)

func environment(changes map[string]string) func(string) string {
	values := map[string]string{
		"ROLLBOX_NODE_NAME": "node-1", "ROLLBOX_NODE_CLIENT": "control-plane.rollbox",
		"ROLLBOX_NODE_NAMESPACE": "rollbox-sandboxes", "ROLLBOX_NODE_HANDLERS": "runsc,runsc-lazy",
	}
	for name, value := range changes {
		values[prefix+name] = value
	}
	return func(name string) string { return values[name] }
}

func TestSettingsHaveDefaults(t *testing.T) {
	s, err := Read(environment(nil))
	if err != nil {
		t.Fatal(err)
	}
	want := Settings{
		Node: "node-1", Listen: ":8443", Containerd: "/run/containerd/containerd.sock", TLS: "/etc/rollbox/tls",
		Client: "control-plane.rollbox", Namespace: "rollbox-sandboxes", Handlers: []string{"runsc", "runsc-lazy"}, Pulls: 2,
		Spool: "/tmp", SpoolGibibytes: 16, Sandboxes: 256, Memory: 512 << 20,
		Grace: 10 * time.Second, Level: slog.LevelInfo,
	}
	if !reflect.DeepEqual(*s, want) {
		t.Errorf("%+v", *s)
	}
}

// The chart passes the memory limit of the container on, whatever it is.
func TestALittleMemoryIsEnoughToStart(t *testing.T) {
	s, err := Read(environment(map[string]string{"MEMORY_BYTES": "33554432"}))
	if err != nil || s.Memory != 32<<20 {
		t.Fatal(s, err)
	}
}

func TestABadSettingIsNamedWithItsRule(t *testing.T) {
	for name, bad := range map[string][]string{
		"NAME":       {"", "Node", "a b", "-a"},
		"CLIENT":     {"", "*", "a/b"},
		"NAMESPACE":  {"", "a.b"},
		"HANDLERS":   {"", "run/sc", "runsc,", "runsc, runsc-lazy"},
		"LISTEN":     {"8443", "host:1", ":70000", ":x"},
		"CONTAINERD": {"containerd.sock", "/run/../x", "/run/"},
		"TLS":        {"tls"},
		"IMAGES":     {"var"},
		"PULLS":      {"0", "65", "two", "1.5"},
		"SPOOL":      {"tmp"},

		"SPOOL_GIBIBYTES": {"0", "16Gi", "-1"},
		"MEMORY_BYTES":    {"1", "512Mi"},
		"GRACE_SECONDS":   {"0", "601", "-1"},
		"DEVICE_HANDLER":  {"run/sc", "runsc,runsc-gpu"},
		"LOG":             {"loud"},
	} {
		for _, value := range bad {
			_, err := Read(environment(map[string]string{name: value}))
			var setting *SettingError
			if !errors.As(err, &setting) || setting.Variable != prefix+name || setting.Value != value || setting.Rule == "" {
				t.Errorf("%s=%q: %v", name, value, err)
			}
		}
	}
}
