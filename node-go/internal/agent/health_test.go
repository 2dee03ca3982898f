package agent

import (
	"path/filepath"
	"strings"
	"testing"

	"rollbox.dev/node/internal/containerd"
	"rollbox.dev/node/internal/install/apply"
	"rollbox.dev/node/internal/played"
	"rollbox.dev/node/internal/wire"
)

func healthOf(t *testing.T, runtime *played.Containerd, settings Settings) *wire.Health {
	t.Helper()
	opened, err := containerd.Open(runtime.Start(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = opened.Close() })
	return (&service{settings: &settings, runtime: opened}).health(t.Context())
}

func TestANodeThatOffersWhatSandboxesNeedHasNoTrouble(t *testing.T) {
	told := healthOf(t, &played.Containerd{Handlers: []string{"runc", "runsc", "kata"}}, Settings{Handlers: []string{"runsc", "kata"}})
	if len(told.GetTroubles()) > 0 {
		t.Errorf("%v", told.GetTroubles())
	}
}

func TestWhatIsMissingIsNamed(t *testing.T) {
	none := filepath.Join(t.TempDir(), "none.sock")
	told := healthOf(t, &played.Containerd{Handlers: []string{"runsc"}}, Settings{Handlers: []string{"runsc", "kata"}, Mounts: none})
	said := strings.Join(told.GetTroubles(), "\n")
	if len(told.GetTroubles()) != 2 || !strings.Contains(said, "the runtime kata") || !strings.Contains(said, "lazily mounted") {
		t.Errorf("%s", said)
	}
}

func TestWhatTheInstallerHasDoneIsTold(t *testing.T) {
	for _, one := range []struct {
		status  *apply.Status
		trouble string
	}{
		{nil, "has not finished yet"},
		{&apply.Status{State: apply.Refused, Detail: "no"}, "refused: no"},
		{&apply.Status{State: apply.Installing, Versions: map[string]string{"runsc": "1"}}, "at work"},
		{&apply.Status{State: apply.Installed, Versions: map[string]string{"runsc": "1"}}, ""},
		// An upgrade that was refused or undone leaves a node that works.
		{&apply.Status{State: apply.Refused, Detail: "no", Versions: map[string]string{"runsc": "1"}}, ""},
	} {
		store := &apply.Store{Folder: t.TempDir()}
		if one.status != nil {
			if err := store.Tell(one.status); err != nil {
				t.Fatal(err)
			}
		}
		told := healthOf(t, &played.Containerd{Handlers: []string{"runsc"}}, Settings{Handlers: []string{"runsc"}, Installed: store.Folder})
		said := strings.Join(told.GetTroubles(), "\n")
		if one.trouble == "" && said != "" || !strings.Contains(said, one.trouble) {
			t.Errorf("%+v: %q", one.status, said)
		}
		if one.status != nil && told.GetInstaller() != string(one.status.State) {
			t.Errorf("%+v: %q", one.status, told.GetInstaller())
		}
	}
}
