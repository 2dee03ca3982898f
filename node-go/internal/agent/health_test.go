package agent

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"rollbox.dev/node/doubles/played"
	"rollbox.dev/node/internal/broken"
	"rollbox.dev/node/internal/containerd"
	"rollbox.dev/node/internal/images"
	"rollbox.dev/node/internal/installed"
	"rollbox.dev/node/internal/wire"
)

func healthOf(t *testing.T, runtime *played.Containerd, settings Settings) *wire.Health {
	t.Helper()
	opened, err := containerd.Open(runtime.Start(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = opened.Close() })
	store := images.NewStore(opened, settings.Handlers, images.NewUse(), images.NewPullMarks(opened, "sandboxes", slog.Default()))
	return (&service{settings: &settings, runtime: opened, store: store, log: slog.Default()}).health(t.Context())
}

func TestANodeThatOffersWhatSandboxesNeedHasNoTrouble(t *testing.T) {
	told := healthOf(t, &played.Containerd{Handlers: []string{"runc", "runsc", "kata"}}, Settings{Handlers: []string{"runsc", "kata"}})
	if len(told.GetTroubles()) > 0 {
		t.Errorf("%v", told.GetTroubles())
	}
}

func TestSandboxesWithDevicesAreWorkedOnAndANodeWithoutTheirRuntimeHasNoTrouble(t *testing.T) {
	settings := Settings{Handlers: []string{"runsc"}, DeviceHandler: "runsc-gpu"}
	told := healthOf(t, &played.Containerd{Handlers: []string{"runsc"}}, settings)
	if len(told.GetTroubles()) > 0 || told.GetLazyTrouble() != "" {
		t.Errorf("%v", told)
	}
	if found := settings.workedOn(); !slices.Equal(found, []string{"runsc", "runsc-gpu"}) {
		t.Error(found)
	}
}

func TestWhatKeepsImagesFromBeingMountedKeepsNoSandboxFromStarting(t *testing.T) {
	none := filepath.Join(t.TempDir(), "none.sock")
	told := healthOf(t, &played.Containerd{Handlers: []string{"runsc"}}, Settings{Handlers: []string{"runsc", "kata"}, Mounts: none})
	if len(told.GetTroubles()) > 0 {
		t.Errorf("sandboxes start whose image is fetched whole: %v", told.GetTroubles())
	}
	if said := told.GetLazyTrouble(); !strings.Contains(said, "the runtime kata; ") || !strings.Contains(said, "lazily mounted") {
		t.Error(said)
	}
	told = healthOf(t, &played.Containerd{Handlers: []string{"kata"}}, Settings{Handlers: []string{"runsc"}})
	if said := told.GetTroubles(); len(said) != 1 || !strings.Contains(said[0], "the runtime runsc") || told.GetLazyTrouble() != "" {
		t.Error(told)
	}
}

func TestImagesWithBrokenLayersAreNamed(t *testing.T) {
	digest := func(of byte) string { return "sha256:" + strings.Repeat(string(of), 64) }
	runtime := &played.Containerd{
		Handlers: []string{"runsc"},
		Images: []*cri.Image{
			{Id: digest('1'), RepoDigests: []string{"r.example/estargz/a@" + digest('a')}},
			{Id: digest('2'), RepoDigests: []string{"r.example/estargz/b@" + digest('b')}},
		},
		Blobs: map[string][]byte{
			digest('a'): []byte(`{"layers":[{"digest":"` + digest('c') + `","size":1}],"config":{"digest":"` + digest('1') + `","size":1}}`),
			digest('b'): []byte(`{"layers":[{"digest":"` + digest('d') + `","size":1}],"config":{"digest":"` + digest('2') + `","size":1}}`),
		},
	}
	socket := filepath.Join(t.TempDir(), "mounts.sock")
	file := filepath.Join(filepath.Dir(socket), broken.File)
	if told := healthOf(t, runtime, Settings{Handlers: []string{"runsc"}, Mounts: socket}); len(told.GetBroken()) != 0 {
		t.Error(told)
	}
	lines := `{"layer":"` + digest('c') + `","why":"invalid chunk"}` + "\nno JSON\n"
	if err := os.WriteFile(file, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	told := healthOf(t, runtime, Settings{Handlers: []string{"runsc"}, Mounts: socket}).GetBroken()
	if len(told) != 1 || told[0].GetDigest() != digest('a') || told[0].GetWhy() != "invalid chunk" {
		t.Error(told)
	}
}

func TestAFullFileSystemIsATrouble(t *testing.T) {
	const gibibyte = 1 << 30
	for _, one := range []struct {
		free, size uint64
		full       bool
	}{{gibibyte, 100 * gibibyte, false}, {gibibyte - 1, 100 * gibibyte, true}, {2 * gibibyte, 4096 * gibibyte, false}, {0, 0, false}, {0, 1 << 20, true}} {
		if found := isFull(one.free, one.size); found != one.full {
			t.Errorf("%+v: %v", one, found)
		}
	}
	told := healthOf(t, &played.Containerd{Handlers: []string{"runsc"}}, Settings{Handlers: []string{"runsc"}, Images: t.TempDir()})
	if len(told.GetTroubles()) > 0 {
		t.Errorf("this machine's: %v", told.GetTroubles())
	}
}

func TestWhatTheInstallerHasDoneIsTold(t *testing.T) {
	for _, one := range []struct {
		status  *installed.Status
		trouble string
	}{
		{nil, "has not finished yet"},
		{&installed.Status{State: installed.Refused, Detail: "no"}, "refused: no"},
		{&installed.Status{State: installed.AtWork, Versions: map[string]string{"runsc": "1"}}, "at work"},
		{&installed.Status{State: installed.Done, Versions: map[string]string{"runsc": "1"}}, ""},
		// An upgrade that was refused or undone leaves a node that works.
		{&installed.Status{State: installed.Refused, Detail: "no", Versions: map[string]string{"runsc": "1"}}, ""},
	} {
		folder := t.TempDir()
		if one.status != nil {
			if err := installed.Tell(folder, one.status); err != nil {
				t.Fatal(err)
			}
		}
		told := healthOf(t, &played.Containerd{Handlers: []string{"runsc"}}, Settings{Handlers: []string{"runsc"}, Installed: folder})
		said := strings.Join(told.GetTroubles(), "\n")
		if one.trouble == "" && said != "" || !strings.Contains(said, one.trouble) {
			t.Errorf("%+v: %q", one.status, said)
		}
		if one.status != nil && told.GetInstaller() != string(one.status.State) {
			t.Errorf("%+v: %q", one.status, told.GetInstaller())
		}
	}
}
