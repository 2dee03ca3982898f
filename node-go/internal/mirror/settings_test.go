package mirror

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
)

func TestABadSettingIsNamedWithItsValueAndItsRule(t *testing.T) {
	folder := t.TempDir()
	account := filepath.Join(folder, "account")
	if err := os.WriteFile(account, []byte("user:password\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	good := map[string]string{
		"TLS_FOLDER": folder, "REGISTRY": "registry.example.com:5444", "REGISTRY_ACCOUNT_FILE": account,
		"PLAIN_HTTP_REGISTRIES": "10.0.0.1:5000, b.example.com",
	}
	read := func(name, value string) (Settings, error) {
		return ReadSettings(func(variable string) (string, bool) {
			if short := strings.TrimPrefix(variable, prefix); short != name {
				found, there := good[short]
				return found, there
			}
			return value, true
		})
	}
	settings, err := read("", "")
	if err != nil || settings.Copies != 4 || len(settings.PlainRegistries) != 2 {
		t.Fatal(settings, err)
	}
	// The chart passes the memory limit of the container on, whatever it is.
	if settings, err = read("MEMORY_BYTES", "33554432"); err != nil || settings.Memory != 32<<20 {
		t.Fatal(settings, err)
	}
	for _, bad := range [][2]string{
		{"LISTEN", "nowhere"}, {"TLS_FOLDER", "/nowhere"}, {"TLS_FOLDER", ""}, {"CLIENT", " "},
		{"REGISTRY", ""}, {"REGISTRY", "a/b"}, {"REGISTRY", "a b"}, {"REGISTRY_CA", "/nowhere"},
		{"REGISTRY_ACCOUNT_FILE", ""}, {"COMMITS", "nowhere"}, {"PLAIN_HTTP_REGISTRIES", "a.io,b/c"}, {"COPIES_AT_ONCE", "0"},
		{"LAYERS_AT_ONCE", "many"}, {"MAX_IMAGE_BYTES", "-1"}, {"STALL_MS", "1"}, {"FOLDER", "/nowhere"},
	} {
		_, err := read(bad[0], bad[1])
		var refused *SettingError
		if !errors.As(err, &refused) || refused.Variable != prefix+bad[0] || refused.Rule == "" {
			t.Errorf("%s=%q: %v", bad[0], bad[1], err)
		}
	}
	var refused *SettingError
	if _, err := read("COMMITS", "0.0.0.0:5445"); !errors.As(err, &refused) || refused.Variable != prefix+"COMMITS_CERTIFICATE" {
		t.Error(err)
	}
	if _, err := Account(account); err != nil {
		t.Error(err)
	}
	if _, err := Account(os.DevNull); err == nil {
		t.Error("an empty account was taken")
	}
}

func TestAnAccountIsReadAnewForEachRequest(t *testing.T) {
	file := filepath.Join(t.TempDir(), "account")
	var account authn.Authenticator
	for i, one := range []string{"push:old", "push:new:er\n"} {
		if err := os.WriteFile(file, []byte(one), 0o600); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			var err error
			if account, err = Account(file); err != nil {
				t.Fatal(err)
			}
		}
		said, err := authn.Authorization(t.Context(), account)
		if err != nil || said.Username+":"+said.Password != strings.TrimSpace(one) {
			t.Fatal(said, err)
		}
	}
}
