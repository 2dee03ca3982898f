package snapshotter

import (
	"errors"
	"strings"
	"testing"
)

func read(values ...string) (*Settings, error) {
	environ := map[string]string{"TRUSTED": "registry.example.com/estargz/"}
	for i := 0; i < len(values); i += 2 {
		environ[values[i]] = values[i+1]
	}
	return Read(func(name string) string { return environ[strings.TrimPrefix(name, prefix)] })
}

func TestSettings(t *testing.T) {
	s, err := read("TRUSTED", "localhost:5000/estargz/, registry.example.com/", "METRICS", "127.0.0.1:1", "ROOT", "/var/lib/x")
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Trusted) != 2 || s.Trusted[1] != "registry.example.com/" || s.Root != "/var/lib/x" || s.Level != "info" {
		t.Errorf("got %+v", s)
	}
}

func TestWrongSettingsAreNamed(t *testing.T) {
	for name, values := range map[string][]string{
		"TRUSTED":        {"", "estargz/", "registry.example.com", "registry.example.com/team", "localhost:5000/a/,"},
		"METRICS":        {"0.0.0.0:9810", "9810", "[::]:1", "example.com:1", "10.0.0.1:1"},
		"MOUNTS_METRICS": {":9811"},
		"SOCKET":         {"relative", "/a/../b", "/" + strings.Repeat("x", 107), "/run/rollbox-snapshotter/mounts.sock"},
		"ROOT":           {"var", "/var/"},
		"LOG":            {"verbose"},
	} {
		for _, value := range values {
			_, err := read(name, value)
			var wrong *SettingError
			if !errors.As(err, &wrong) {
				t.Errorf("%s=%q is taken", name, value)
			} else if !strings.HasSuffix(wrong.Variable, name) {
				t.Errorf("%s=%q: %v", name, value, err)
			}
		}
	}
}

func TestOnlyTrustedEStargzLayersAreMounted(t *testing.T) {
	trusted := []string{"r.example.com/estargz/"}
	for _, one := range []struct{ reference, toc, reason string }{
		{"r.example.com/estargz/python@sha256:1", "sha256:2", ""},
		{"r.example.com/estargz/python@sha256:1", "", ReasonPlain},
		{"r.example.com/estargz-2/python@sha256:1", "sha256:2", ReasonUntrusted},
		{"evil.example.com/r.example.com/estargz/x:1", "sha256:2", ReasonUntrusted},
		{"", "sha256:2", ReasonUntrusted},
	} {
		err := lazily(map[string]string{labelReference: one.reference, labelTOC: one.toc}, trusted)
		var why *errNotLazy
		switch {
		case one.reason == "" && err != nil:
			t.Errorf("%+v: %v", one, err)
		case one.reason != "" && (!errors.As(err, &why) || why.reason != one.reason):
			t.Errorf("%+v: %v", one, err)
		}
	}
}
