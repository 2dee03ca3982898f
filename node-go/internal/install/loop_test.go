package install

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rollbox.dev/node/doubles/played"
	"rollbox.dev/node/internal/containerd"
	"rollbox.dev/node/internal/install/plan"
	"rollbox.dev/node/internal/installed"
)

// on is an installer of a node whose containerd is played; its programs are not what the manifest says, so no plan succeeds.
func on(t *testing.T, socket string) *installer {
	t.Helper()
	folder := t.TempDir()
	settings, err := readWith(payload(t, whole()), map[string]string{
		"CONTAINERD": socket, "CONFIG": filepath.Join(folder, "etc/config.toml"), "FOLDER": filepath.Join(folder, "opt"),
		"KEEPER": "process", "EVERY_SECONDS": "3600", "RETRY_SECONDS": "3600",
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(folder, "etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(settings.Config, []byte("version = 3\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	runtime, err := containerd.Open(socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = runtime.Close() })
	return newInstaller(settings, runtime, slog.New(slog.DiscardHandler))
}

func status(t *testing.T, i *installer) *installed.Status {
	t.Helper()
	found, err := installed.Read(i.applier.Store.Folder)
	if err != nil || found == nil {
		t.Fatalf("%v, %v", found, err)
	}
	return found
}

func TestAPlanThatFailsIsTriedAgainLessAndLessOften(t *testing.T) {
	for failures, wanted := range []time.Duration{30, 30, 60, 120, 240, 480, 960, 1920, 3600, 3600} {
		if found := backoff(30*time.Second, failures); found != wanted*time.Second {
			t.Errorf("after %d failures %v, not %v", failures, found, wanted*time.Second)
		}
	}
	if found := backoff(30*time.Second, 1<<40); found != time.Hour {
		t.Errorf("%v", found)
	}
}

func TestAPlanThatHasFailedWaitsUntilSomebodyAsks(t *testing.T) {
	i := on(t, (&played.Containerd{}).Start(t))
	staying := Work{Stay: true}
	var failed *planError
	if err := i.once(t.Context(), staying, &strings.Builder{}); !errors.As(err, &failed) {
		t.Fatalf("%v", err)
	}
	if told := status(t, i); told.State != installed.Failed || told.Failures != 1 || told.Plan != failed.digest {
		t.Errorf("%+v", told)
	}
	var waits *waitsError
	err := i.once(t.Context(), staying, &strings.Builder{})
	if !errors.As(err, &waits) || i.next(err) > time.Hour || i.next(err) < 50*time.Minute {
		t.Fatalf("%v", err)
	}
	if err := i.applier.Store.Ask(); err != nil {
		t.Fatal(err)
	}
	// It ends at once, where it would wait for an hour.
	i.pause(t.Context(), err)
	if err := i.once(t.Context(), staying, &strings.Builder{}); !errors.As(err, &failed) || i.applier.Store.Asked() {
		t.Errorf("%v", err)
	}
	// By hand it is tried whatever was.
	if err := i.once(t.Context(), Work{}, &strings.Builder{}); !errors.As(err, &failed) {
		t.Errorf("%v", err)
	}
	if told := status(t, i); told.Failures != 2 {
		t.Errorf("%+v", told)
	}
}

func TestAFailureThatIsNoRefusalIsTold(t *testing.T) {
	i := on(t, filepath.Join(t.TempDir(), "none.sock"))
	if err := i.once(t.Context(), Work{Stay: true}, &strings.Builder{}); err == nil {
		t.Fatal("it has not failed")
	}
	if told := status(t, i); told.State != installed.Failed || told.Plan != "" || !strings.Contains(told.Detail, "does not answer") {
		t.Errorf("%+v", told)
	}
}

func TestOneThatIsToldToEndHasNotFailed(t *testing.T) {
	i := on(t, (&played.Containerd{}).Start(t))
	ctx, end := context.WithCancel(t.Context())
	end()
	if err := i.once(ctx, Work{Stay: true}, &strings.Builder{}); err == nil {
		t.Fatal("it has not failed")
	}
	if found, err := installed.Read(i.applier.Store.Folder); found != nil || err != nil {
		t.Errorf("%+v, %v", found, err)
	}
}

func TestADryRunTellsOfARunThatWasStopped(t *testing.T) {
	i := on(t, (&played.Containerd{}).Start(t))
	folder := i.applier.Store.Folder
	journal := `{"entries": [{"path": "/opt/bin/runsc"}], "services": ["containerd"]}`
	if err := errors.Join(os.MkdirAll(folder, 0o755), os.WriteFile(filepath.Join(folder, "journal.json"), []byte(journal), 0o644)); err != nil {
		t.Fatal(err)
	}
	for _, one := range []struct {
		json   bool
		wanted string
	}{{false, "undoes it first (/opt/bin/runsc, containerd)"}, {true, `"unfinished": {`}} {
		var out strings.Builder
		if err := i.foresee(t.Context(), Work{DryRun: true, JSON: one.json}, &out); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out.String(), one.wanted) || !strings.Contains(out.String(), plan.Shim) {
			t.Errorf("%s", out.String())
		}
	}
}
