package install

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rollbox.dev/node/doubles/played"
)

// bounded is an installer of a node whose kernel has few numbers for threads, and the file that says so.
func bounded(t *testing.T) (*installer, string) {
	t.Helper()
	i := on(t, (&played.Containerd{}).Start(t))
	i.settings.Limits, i.settings.Sandboxes = t.TempDir(), 256
	file := filepath.Join(i.settings.Limits, "kernel/pid_max")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("32768\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	return i, file
}

func value(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

func TestTheKernelsSettingsAreRaisedWhateverBecomesOfTheInstallAndGivenBack(t *testing.T) {
	i, file := bounded(t)
	if err := i.once(t.Context(), Work{}, &strings.Builder{}); err == nil {
		t.Fatal("the plan of this node fails")
	}
	if value(t, file) != "4194304" {
		t.Error(value(t, file))
	}
	if err := i.once(t.Context(), Work{Uninstall: true}, &strings.Builder{}); err != nil {
		t.Fatal(err)
	}
	if value(t, file) != "32768" {
		t.Error(value(t, file))
	}
	if _, err := os.Stat(i.limitsRecord()); !os.IsNotExist(err) {
		t.Error("the record stays")
	}
}

func TestADryRunTellsWhatWouldBeRaised(t *testing.T) {
	i, file := bounded(t)
	var out, asJSON strings.Builder
	if err := i.foresee(t.Context(), Work{DryRun: true}, &out); err != nil {
		t.Fatal(err)
	}
	line := strings.Join(strings.Fields(strings.Split(out.String(), "\n")[1]), " ")
	if line != "raise kernel.pid_max it is 32768, and 256 sandboxes need 47104: to 4194304" {
		t.Error(line)
	}
	if err := i.foresee(t.Context(), Work{DryRun: true, JSON: true}, &asJSON); err != nil || !strings.Contains(asJSON.String(), `"limits"`) {
		t.Error(asJSON.String(), err)
	}
	if value(t, file) != "32768" {
		t.Error("a dry run has changed it")
	}
}
