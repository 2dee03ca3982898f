package agent

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"rollbox.dev/node/doubles/played"
)

const asOutsider = "ROLLBOX_TEST_SOCKET"

// TestMain is also an agent in a pid namespace of its own, which ends with 64 when it refuses to work there.
func TestMain(m *testing.M) {
	socket := os.Getenv(asOutsider)
	if socket == "" {
		os.Exit(m.Run())
	}
	refused := new(SettingError)
	if errors.As(inSight(context.Background(), &Settings{Containerd: socket}, slog.Default()), &refused) {
		os.Exit(64)
	}
}

func TestAnAgentThatDoesNotSeeTheNodesProcessesRefusesToWork(t *testing.T) {
	socket := (&played.Containerd{}).Start(t)
	command := exec.Command(os.Args[0])
	command.Env = []string{asOutsider + "=" + socket}
	command.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWPID}
	if os.Geteuid() == 0 {
		command.SysProcAttr.Cloneflags = syscall.CLONE_NEWPID
	}
	err := command.Run()
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOSPC) {
		t.Skip("no pid namespace can be made here")
	}
	if ended := (*exec.ExitError)(nil); !errors.As(err, &ended) || ended.ExitCode() != 64 {
		t.Errorf("%v", err)
	}
	if err := inSight(t.Context(), &Settings{Containerd: socket}, slog.Default()); err != nil {
		t.Errorf("in the same namespace: %v", err)
	}
	away := &Settings{Containerd: filepath.Join(t.TempDir(), "away.sock")}
	if err := inSight(t.Context(), away, slog.Default()); err != nil {
		t.Errorf("while containerd is away: %v", err)
	}
}
