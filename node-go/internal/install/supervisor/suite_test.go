package supervisor

import (
	"context"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"rollbox.dev/node/internal/containerd"
)

// supervisor is what keeps a service running in a test.
type supervisor interface {
	// described makes the service known, or known anew, before it is provided; it says a further word from then on.
	described(t *testing.T, service Service, says string)
	// killed ends its process with SIGKILL, behind the supervisor's back.
	killed(t *testing.T, service Service)
	// dropped is told that nobody wants it any more.
	dropped(t *testing.T, service Service)
}

// A service comes, is started anew, comes back by itself, gets other settings and goes: whatever keeps it running.
func suite(t *testing.T, kept Supervisor, by supervisor) {
	service := Service{"rollbox-test-service", filepath.Join(t.TempDir(), "s")}
	by.described(t, service, "one")
	if err := kept.Provide(t.Context(), service); err != nil {
		t.Fatal(err)
	}
	running(t, kept, service, true)
	first := says(t, service, "one")
	if err := kept.Restart(t.Context(), service); err != nil {
		t.Fatal(err)
	}
	second := says(t, service, "one")
	by.killed(t, service)
	third := becomes(t, service, second)
	by.described(t, service, "two")
	if err := kept.Provide(t.Context(), service); err != nil {
		t.Fatal(err)
	}
	fourth := says(t, service, "two")
	if different := map[string]bool{first: true, second: true, third: true, fourth: true}; len(different) != 4 {
		t.Errorf("%v", different)
	}
	by.dropped(t, service)
	for range 2 {
		// The second time there is none.
		if err := kept.Withdraw(t.Context(), service); err != nil {
			t.Fatal(err)
		}
	}
	running(t, kept, service, false)
	if said, err := said(service); err == nil {
		t.Errorf("%s still answers", said)
	}
}

func running(t *testing.T, kept Supervisor, service Service, wanted bool) {
	t.Helper()
	if found, err := kept.Running(t.Context(), service); found != wanted || err != nil {
		t.Errorf("running: %v, %v", found, err)
	}
}

// said is what the process says that listens now.
func said(service Service) (string, error) {
	connection, err := net.Dial("unix", service.Socket)
	if err != nil {
		return "", err
	}
	defer connection.Close()
	text, err := io.ReadAll(connection)
	return string(text), err
}

func says(t *testing.T, service Service, ending string) string {
	t.Helper()
	found, err := said(service)
	if err != nil || !strings.HasSuffix(found, ending) {
		t.Fatalf("it says %q: %v", found, err)
	}
	return found
}

// becomes waits until another process listens.
func becomes(t *testing.T, service Service, before string) string {
	t.Helper()
	for range 600 {
		if found, err := said(service); err == nil && found != "" && found != before {
			return found
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatal("it does not come back")
	return ""
}

// processes are started again by a goroutine of the test.
type processes struct{ stop func() }

func (p *processes) described(t *testing.T, service Service, says string) {
	t.Setenv(saysToo, says)
	if p.stop != nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	var starting sync.WaitGroup
	starting.Go(func() {
		for ctx.Err() == nil {
			command := exec.CommandContext(ctx, os.Args[0])
			command.Env = append(os.Environ(), listensOn+"="+service.Socket)
			_ = command.Run()
		}
	})
	p.stop = func() { cancel(); starting.Wait() }
	t.Cleanup(p.stop)
}

func (p *processes) killed(t *testing.T, service Service) {
	pid, err := containerd.Listener(t.Context(), service.Socket)
	if err == nil {
		err = syscall.Kill(int(pid), syscall.SIGKILL)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (p *processes) dropped(*testing.T, Service) { p.stop() }

func TestProcessesThatSomebodyStartsAgain(t *testing.T) {
	suite(t, &Processes{EndsIn: 10 * time.Second, StartsIn: 10 * time.Second}, &processes{})
}
