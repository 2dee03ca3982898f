package install

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func payload(t *testing.T, text string) string {
	t.Helper()
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "manifest.json"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return folder
}

func whole() string {
	var programs []string
	for _, name := range []string{"runsc", "containerd-shim-runsc-v1", "rollbox-snapshotter", "rollbox-node"} {
		programs = append(programs, `"`+name+`": {"digest": "`+strings.Repeat("a", 64)+`", "version": "1"}`)
	}
	return "{" + strings.Join(programs, ", ") + "}"
}

func readWith(folder string, values map[string]string) (*Settings, error) {
	return Read(func(name string) string {
		if name == "ROLLBOX_INSTALL_PAYLOAD" {
			return folder
		}
		return values[strings.TrimPrefix(name, "ROLLBOX_INSTALL_")]
	})
}

func TestSettings(t *testing.T) {
	folder := payload(t, whole())
	s, err := readWith(folder, nil)
	if err != nil {
		t.Fatal(err)
	}
	if s.Supervisor != "systemd" || s.Unit != "containerd.service" || s.Every != time.Minute || s.Wanted.Handler != "runsc" || s.Wanted.Lazy != nil {
		t.Errorf("%+v", s)
	}
	s, err = readWith(folder, map[string]string{"LAZY_HANDLER": "runsc-lazy", "LAZY_IMAGES": "a.example/x/,localhost:5000/y/", "KEEPER": "process"})
	if err != nil || s.Wanted.Lazy == nil || len(s.Wanted.Lazy.Images) != 2 {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestBadSettingsAreNamed(t *testing.T) {
	folder := payload(t, whole())
	for _, one := range []struct{ name, value string }{
		{"CONTAINERD", "run/containerd.sock"}, {"CONFIG", "/etc/../x"}, {"KEEPER", "runit"}, {"UNIT", "containerd"},
		{"FOLDER", "/opt/roll box"}, {"FOLDER", "/opt/\"x"}, {"UNITS", "units"}, {"HANDLER", "runsc\"]"}, {"EVERY_SECONDS", "0"}, {"QUIET_SECONDS", "-1"}, {"STARTS_SECONDS", "0"}, {"RETRY_SECONDS", "0"},
		{"LOG", "loud"}, {"LAZY_IMAGES", "a.example/x"}, {"LAZY_IMAGES", ""}, {"LAZY_HANDLER", "runsc"},
	} {
		values := map[string]string{"LAZY_HANDLER": "runsc-lazy", "LAZY_IMAGES": "a/"}
		values[one.name] = one.value
		_, err := readWith(folder, values)
		wrong := (*SettingError)(nil)
		if !errors.As(err, &wrong) || wrong.Variable != "ROLLBOX_INSTALL_"+one.name {
			t.Errorf("%s=%q: %v", one.name, one.value, err)
		}
	}
}

func TestAPayloadIsWhole(t *testing.T) {
	for _, text := range []string{"", "{}", "[]", strings.Replace(whole(), `"runsc"`, `"crun"`, 1), strings.Replace(whole(), "a", "", 1)} {
		if _, err := readWith(payload(t, text), nil); err == nil {
			t.Errorf("%s is taken", text)
		}
	}
	if _, err := readWith(t.TempDir(), nil); err == nil {
		t.Error("none is taken")
	}
}

func TestTheCommandLine(t *testing.T) {
	for line, wanted := range map[string]Work{
		"install":                  {},
		"install --dry-run --json": {DryRun: true, JSON: true},
		"install --stay":           {Stay: true},
		"uninstall --stay":         {Uninstall: true, Stay: true},
		"uninstall --dry-run":      {Uninstall: true, DryRun: true},
	} {
		if work, err := ReadWork(strings.Fields(line)); work != wanted || err != nil {
			t.Errorf("%s: %+v, %v", line, work, err)
		}
	}
	for _, line := range []string{"install --force", "install now", "install --stay --dry-run", "install --stay --json"} {
		if _, err := ReadWork(strings.Fields(line)); err == nil {
			t.Errorf("%s is taken", line)
		}
	}
}
