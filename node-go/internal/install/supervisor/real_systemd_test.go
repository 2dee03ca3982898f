package supervisor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coreos/go-systemd/v22/dbus"
)

// machine is a systemd of the test's own: process 1 of new namespaces, with these units and no others.
type machine struct {
	*Systemd
	folder string
}

func boot(t *testing.T) *machine {
	t.Helper()
	for _, program := range []string{"/lib/systemd/systemd", "/usr/bin/dbus-daemon"} {
		if _, err := os.Stat(program); err != nil || os.Getuid() != 0 {
			t.Skipf("a systemd needs root and %s", program)
		}
	}
	// A socket's path is short.
	folder, err := os.MkdirTemp("", "systemd")
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command("testdata/systemd.sh", folder)
	// It ends with this.
	alive, err := command.StdinPipe()
	if err == nil {
		err = command.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = alive.Close()
		if err := errors.Join(command.Wait(), os.RemoveAll(folder)); err != nil {
			t.Error(err)
		}
	})
	made := &machine{&Systemd{Bus: filepath.Join(folder, "bus"), StartsIn: 20 * time.Second}, folder}
	made.wait(t)
	return made
}

func (m *machine) wait(t *testing.T) {
	t.Helper()
	var err error
	for range 300 {
		if _, err = m.Running(t.Context(), Service{Name: "dbus"}); err == nil {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	log, _ := os.ReadFile(filepath.Join(m.folder, "log"))
	t.Fatalf("systemd does not answer: %v\n%s", err, log)
}

func (m *machine) file(service Service) string {
	return filepath.Join(m.folder, "units", service.Name+".service")
}

func (m *machine) unit(t *testing.T, service Service, lines string) {
	t.Helper()
	text := "[Unit]\nStartLimitIntervalSec=0\n[Service]\nRestart=always\nRestartSec=100ms\n" + lines + "\n[Install]\nWantedBy=multi-user.target\n"
	if err := os.WriteFile(m.file(service), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func (m *machine) described(t *testing.T, service Service, says string) {
	lines := fmt.Sprintf("ExecStart=%s\nEnvironment=%s=%s %s=%s", os.Args[0], listensOn, service.Socket, saysToo, says)
	m.unit(t, service, lines)
}

func (m *machine) killed(t *testing.T, service Service) {
	t.Helper()
	err := m.with(t.Context(), func(systemd *dbus.Conn) error {
		return systemd.KillUnitWithTarget(t.Context(), service.Name+".service", dbus.Main, int32(syscall.SIGKILL))
	})
	if err != nil {
		t.Fatal(err)
	}
}

func (m *machine) dropped(*testing.T, Service) {}

// of is what systemd says of a unit.
func (m *machine) of(t *testing.T, service Service, name string) (found string) {
	t.Helper()
	err := m.with(t.Context(), func(systemd *dbus.Conn) (err error) {
		found, err = m.property(t.Context(), systemd, service, name)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestASystemdKeepsServicesRunning(t *testing.T) {
	m := boot(t)
	suite(t, m.Systemd, m)
}

func TestASystemdHasNothingAfterwards(t *testing.T) {
	m := boot(t)
	service := Service{"leaves-nothing", filepath.Join(t.TempDir(), "s")}
	before := tree(t, m.folder)
	m.described(t, service, "")
	if err := m.Provide(t.Context(), service); err != nil {
		t.Fatal(err)
	}
	wants := filepath.Join(m.folder, "units/multi-user.target.wants", service.Name+".service")
	if _, err := os.Lstat(wants); err != nil || m.of(t, service, "UnitFileState") != "enabled" {
		t.Errorf("it is not started with the node: %v", err)
	}
	if err := m.Withdraw(t.Context(), service); err != nil {
		t.Fatal(err)
	}
	// As the installer does then.
	if err := os.Remove(m.file(service)); err != nil {
		t.Fatal(err)
	}
	if state := m.of(t, service, "LoadState"); state != "not-found" {
		t.Errorf("systemd still has it: %s", state)
	}
	_ = os.Remove(filepath.Dir(wants))
	if after := tree(t, m.folder); after != before {
		t.Errorf("it was\n%s\nand is\n%s", before, after)
	}
}

func tree(t *testing.T, folder string) string {
	t.Helper()
	var paths []string
	err := filepath.WalkDir(filepath.Join(folder, "units"), func(path string, _ fs.DirEntry, err error) error {
		paths = append(paths, path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(paths, "\n")
}

func TestASystemdIsAskedAgainWhenAServiceWasTakenFromIt(t *testing.T) {
	for name, take := range map[string]func(context.Context, *dbus.Conn, string) error{
		"stopped": func(ctx context.Context, systemd *dbus.Conn, unit string) error {
			return job(ctx, "stop", unit, systemd.StopUnitContext)
		},
		"disabled": func(ctx context.Context, systemd *dbus.Conn, unit string) error {
			_, err := systemd.DisableUnitFilesContext(ctx, []string{unit}, false)
			return errors.Join(err, systemd.ReloadContext(ctx))
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := boot(t)
			service := Service{"taken", filepath.Join(t.TempDir(), "s")}
			m.described(t, service, "")
			if err := m.Provide(t.Context(), service); err != nil {
				t.Fatal(err)
			}
			running(t, m, service, true)
			err := m.with(t.Context(), func(systemd *dbus.Conn) error { return take(t.Context(), systemd, "taken.service") })
			if err != nil {
				t.Fatal(err)
			}
			running(t, m, service, false)
			if err := m.Provide(t.Context(), service); err != nil {
				t.Fatal(err)
			}
			running(t, m, service, true)
		})
	}
}

func TestASystemdSaysWhyAServiceDoesNotAnswer(t *testing.T) {
	for lines, wanted := range map[string]string{
		"ExecStart=/bin/false":    "result exit-code, exit status 1",
		"ExecStart=/none":         "exit status 203",
		"ExecStart=/bin/sleep 60": "systemd says active (running)",
		"Type=notify\nTimeoutStartSec=1s\nExecStart=/bin/sleep 60": "restart fails.service: systemd says failed",
		"ExecStart=nonsense\nType=wrong":                           "fails.service",
	} {
		m := boot(t)
		m.StartsIn = time.Second
		service := Service{"fails", filepath.Join(t.TempDir(), "s")}
		m.unit(t, service, lines)
		// On a busy machine a second is too little for systemd to hear how a process has ended: it is asked again.
		said := func() bool {
			err := m.Provide(t.Context(), service)
			t.Logf("%q: %v", lines, err)
			return err != nil && strings.Contains(err.Error(), wanted)
		}
		for until := time.Now().Add(time.Minute); !said(); {
			if time.Now().After(until) {
				t.Errorf("%q: %q was not said", lines, wanted)
				break
			}
		}
		if err := m.Withdraw(t.Context(), service); err != nil {
			t.Errorf("%q: %v", lines, err)
		}
	}
}

func TestASystemdStartsAServiceHoweverOftenItEnds(t *testing.T) {
	m := boot(t)
	service := Service{"often", filepath.Join(t.TempDir(), "s")}
	m.described(t, service, "")
	if err := m.Provide(t.Context(), service); err != nil {
		t.Fatal(err)
	}
	for now := says(t, service, ""); ; now = becomes(t, service, now) {
		if restarts := m.restarts(t, service); restarts >= 7 {
			break
		}
		m.killed(t, service)
	}
	running(t, m, service, true)
}

func (m *machine) restarts(t *testing.T, service Service) (times uint32) {
	t.Helper()
	err := m.with(t.Context(), func(systemd *dbus.Conn) error {
		found, err := systemd.GetServicePropertyContext(t.Context(), service.Name+".service", "NRestarts")
		if err == nil {
			times = found.Value.Value().(uint32)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return times
}
