package supervisor

import (
	"context"
	"crypto/rand"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"rollbox.dev/node/internal/containerd"
)

// This program is the service too: it listens on the socket that the one variable names, until it is ended. Who connects
// is told a word that no other process says, and what the other variable has.
const (
	listensOn = "ROLLBOX_TEST_LISTENS_ON"
	saysToo   = "ROLLBOX_TEST_SAYS"
)

func TestMain(m *testing.M) {
	socket := os.Getenv(listensOn)
	if socket == "" {
		os.Exit(m.Run())
	}
	_ = os.Remove(socket)
	listener, err := net.Listen("unix", socket)
	if err != nil {
		os.Exit(1)
	}
	me := rand.Text()
	for {
		connection, err := listener.Accept()
		if err != nil {
			os.Exit(1)
		}
		_, _ = connection.Write([]byte(me + os.Getenv(saysToo)))
		_ = connection.Close()
	}
}

// supervised starts a service again whenever it ends, up to so many times.
func supervised(t *testing.T, starts int) Service {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	ctx, stop := context.WithCancel(context.Background())
	var supervisor sync.WaitGroup
	supervisor.Go(func() {
		for ; starts > 0 && ctx.Err() == nil; starts-- {
			command := exec.CommandContext(ctx, os.Args[0])
			command.Env = append(os.Environ(), listensOn+"="+socket)
			_ = command.Run()
		}
	})
	t.Cleanup(func() { stop(); supervisor.Wait() })
	return Service{"service", socket}
}

func listener(t *testing.T, service Service) int32 {
	t.Helper()
	for range 200 {
		if pid, err := containerd.Listener(t.Context(), service.Socket); err == nil {
			return pid
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatal("it does not listen")
	return 0
}

func TestAProcessIsEndedAndItsNextOneWaitedFor(t *testing.T) {
	service := supervised(t, 10)
	before := listener(t, service)
	kept := &Processes{EndsIn: 10 * time.Second, StartsIn: 10 * time.Second}
	if running, err := kept.Running(t.Context(), service); !running || err != nil {
		t.Errorf("%v, %v", running, err)
	}
	if err := kept.Restart(t.Context(), service); err != nil {
		t.Fatal(err)
	}
	if after := listener(t, service); after == before {
		t.Error("it is the same process")
	}
}

func TestAProcessThatNobodyStartsAgainIsAFailure(t *testing.T) {
	service := supervised(t, 1)
	listener(t, service)
	kept := &Processes{EndsIn: 10 * time.Second, StartsIn: 300 * time.Millisecond}
	if err := kept.Restart(t.Context(), service); err == nil || !strings.Contains(err.Error(), "not started again") {
		t.Errorf("%v", err)
	}
	if running, err := kept.Running(t.Context(), service); running || err != nil {
		t.Errorf("%v, %v", running, err)
	}
	if err := kept.Withdraw(t.Context(), service); err != nil {
		t.Errorf("there is none any more: %v", err)
	}
}
