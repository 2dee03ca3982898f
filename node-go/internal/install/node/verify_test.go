package node

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"

	"rollbox.dev/node/doubles/played"
	"rollbox.dev/node/internal/containerd"
	"rollbox.dev/node/internal/install/plan"
)

// servesOn has this program serve gRPC on a socket, as a process of the snapshotter does.
const servesOn = "ROLLBOX_TEST_SERVES_ON"

func TestMain(m *testing.M) {
	socket := os.Getenv(servesOn)
	if socket == "" {
		os.Exit(m.Run())
	}
	listener, err := net.Listen("unix", socket)
	if err != nil || grpc.NewServer().Serve(listener) != nil {
		os.Exit(1)
	}
}

// serving starts a process that answers on a socket.
func serving(t *testing.T, socket string) *os.Process {
	t.Helper()
	command := exec.Command(os.Args[0])
	command.Env = append(os.Environ(), servesOn+"="+socket)
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	for {
		if err := containerd.Answers(t.Context(), socket); err == nil {
			return command.Process
		} else if t.Context().Err() != nil {
			t.Fatal(err)
		}
	}
}

// stop returns when every thread of a process is stopped: some may run on for a while after the signal was sent.
func stop(t *testing.T, process *os.Process) {
	t.Helper()
	if err := process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(process.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
		t.Fatalf("the process did not stop: %v, status %d", err, status)
	}
}

func TestASnapshotterWhoseProcessIsStoppedFailsTheVerification(t *testing.T) {
	n, folder := at(t, &played.Containerd{}, nil)
	n.Wanted.Lazy = &plan.Lazy{Snapshotter: "stargz", Run: folder}
	serve, mounts := n.Wanted.Lazy.Sockets()
	n.Sockets = map[string]string{plan.ServeUnit: serve, plan.MountsUnit: mounts}
	processes := map[string]*os.Process{}
	for name, socket := range n.Sockets {
		processes[name] = serving(t, socket)
	}
	if err := n.snapshotter(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, process := range processes {
		stop(t, process)
		// The kernel takes connections for it all the same.
		if _, err := containerd.Listener(t.Context(), n.Sockets[name]); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		err := n.snapshotter(ctx)
		cancel()
		if err == nil || !strings.HasPrefix(err.Error(), name+" runs, and answers no call within") {
			t.Errorf("%s is stopped: %v", name, err)
		}
		if err := process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		if err := n.snapshotter(t.Context()); err != nil {
			t.Errorf("%s goes on: %v", name, err)
		}
	}
}

func TestASnapshotterThatContainerdDoesNotKnowFailsTheVerification(t *testing.T) {
	n, folder := at(t, &played.Containerd{}, nil)
	n.Wanted.Lazy = &plan.Lazy{Snapshotter: "other", Run: filepath.Join(folder, "run")}
	if err := n.snapshotter(t.Context()); err == nil || !strings.Contains(err.Error(), "the snapshotter other") {
		t.Error(err)
	}
}
