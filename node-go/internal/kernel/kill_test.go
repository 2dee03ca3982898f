package kernel

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"rollbox.dev/node/doubles/played"
	"rollbox.dev/node/internal/containerd"
	"rollbox.dev/node/internal/pods"
	"rollbox.dev/node/internal/problem"
	"rollbox.dev/node/internal/process"
)

const pod = "5f2c9d0e"

func killer() *Killer {
	found := &pods.Finder{Namespace: "rollbox-sandboxes", Handlers: []string{"runsc-lazy", "runsc"}}
	return NewKiller(nil, found, slog.New(slog.NewTextHandler(io.Discard, nil)))
}

func one(name, namespace, handler string) *cri.PodSandbox {
	about := &cri.PodSandboxMetadata{Name: name, Namespace: namespace}
	return &cri.PodSandbox{Id: pod, Metadata: about, RuntimeHandler: handler}
}

// stopped starts a process with a command line of its own, which stands still as a kernel that hangs does.
func stopped(t *testing.T, words ...string) uint32 {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	command := &exec.Cmd{Path: self, Args: words, Env: []string{asVictim + "=1"}}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = command.Process.Kill(); _ = command.Wait() })
	if err := command.Process.Signal(unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	// Start returns in the middle of the exec, before the new command line is there to be read.
	for {
		if line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", command.Process.Pid)); err != nil {
			t.Fatal(err)
		} else if len(line) > 0 {
			return uint32(command.Process.Pid)
		}
		time.Sleep(time.Millisecond)
	}
}

const asVictim = "ROLLBOX_TEST_VICTIM"

func TestMain(m *testing.M) {
	if os.Getenv(asVictim) != "" {
		// Not select{}: with nothing else to do, Go's runtime ends the process as deadlocked before the signal stops it.
		time.Sleep(time.Hour)
	}
	os.Exit(m.Run())
}

func TestAKernelThatIsStoppedEnds(t *testing.T) {
	pid := stopped(t, "runsc-sandbox", "boot", pod)
	ended, err := killer().end(context.Background(), one("sb-1", "rollbox-sandboxes", "runsc"), pid)
	if err != nil || !ended {
		t.Fatalf("ended %v, %v", ended, err)
	}
	if held, err := process.Hold(pid); err != nil {
		t.Fatal(err)
	} else if held != nil {
		// Nobody has waited for it yet, so its number is its own; it has ended all the same.
		defer held.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := held.Ended(ctx); err != nil {
			t.Fatal(err)
		}
	}
}

func TestWhatIsNotThisPodsKernelIsLeftAlone(t *testing.T) {
	for _, words := range [][]string{
		{"runsc-sandbox", "boot", pod + "0"},
		{"runsc-sandbox", pod},
		{"runsc-gofer", "boot", pod},
		{"sleep", "runsc-sandbox", pod},
		{"runsc-sandbox", pod, "boot"},
	} {
		pid := stopped(t, words...)
		ended, err := killer().end(context.Background(), one("sb-1", "rollbox-sandboxes", "runsc"), pid)
		if err != nil || ended {
			t.Errorf("%q: ended %v, %v", words, ended, err)
		}
		if err := unix.Kill(int(pid), 0); err != nil {
			t.Errorf("%q is gone: %v", words, err)
		}
	}
}

func TestAProcessThatIsGoneIsNotEnded(t *testing.T) {
	command := exec.Command("true")
	if err := command.Run(); err != nil {
		t.Fatal(err)
	}
	for _, pid := range []uint32{0, uint32(command.Process.Pid)} {
		ended, err := killer().end(context.Background(), one("sb-1", "rollbox-sandboxes", "runsc"), pid)
		if err != nil || ended {
			t.Errorf("%d: ended %v, %v", pid, ended, err)
		}
	}
}

// playing is a killer on a node with one pod, of which the runtime says one thing after another, and the last for ever.
func playing(t *testing.T, said ...*cri.PodSandboxStatusResponse) *Killer {
	t.Helper()
	played := &played.Containerd{Pods: []*cri.PodSandbox{one("sb-1", "rollbox-sandboxes", "runsc")}}
	played.Looking = func(string) *cri.PodSandboxStatusResponse {
		now := said[0]
		if len(said) > 1 {
			said = said[1:]
		}
		return now
	}
	runtime, err := containerd.Open(played.Start(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = runtime.Close() })
	found := &pods.Finder{Runtime: runtime, Namespace: "rollbox-sandboxes", Handlers: []string{"runsc"}}
	k := NewKiller(runtime, found, slog.New(slog.NewTextHandler(io.Discard, nil)))
	k.lookEvery = 0
	return k
}

func says(state cri.PodSandboxState, pid uint32) *cri.PodSandboxStatusResponse {
	info := map[string]string{"info": fmt.Sprintf(`{"pid":%d}`, pid)}
	return &cri.PodSandboxStatusResponse{Status: &cri.PodSandboxStatus{State: state}, Info: info}
}

func TestAKernelThatRunsAndIsNotFoundIsNoSuccess(t *testing.T) {
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	other := stopped(t, "runsc-sandbox", "boot", pod+"0")
	for _, pid := range []uint32{0, uint32(gone.Process.Pid), other} {
		killed, err := playing(t, says(cri.PodSandboxState_SANDBOX_READY, pid)).Kill(t.Context(), "sb-1")
		if killed != nil || err == nil || problem.From(err).Code != problem.Internal {
			t.Errorf("%d: killed %v, %v", pid, killed, err)
		}
		killed, err = playing(t, says(cri.PodSandboxState_SANDBOX_NOTREADY, pid)).Kill(t.Context(), "sb-1")
		if len(killed) != 0 || err != nil {
			t.Errorf("%d, which does not run: killed %v, %v", pid, killed, err)
		}
	}
	if err := unix.Kill(int(other), 0); err != nil {
		t.Error(err)
	}
}

func TestTheRuntimeHearsOfAnEndAMomentLater(t *testing.T) {
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	pid := uint32(gone.Process.Pid)
	k := playing(t, says(cri.PodSandboxState_SANDBOX_READY, pid), says(cri.PodSandboxState_SANDBOX_NOTREADY, 0))
	if killed, err := k.Kill(t.Context(), "sb-1"); len(killed) != 0 || err != nil {
		t.Errorf("killed %v, %v", killed, err)
	}
}

func TestTheKernelThatTheRuntimeNamesIsKilled(t *testing.T) {
	pid := stopped(t, "runsc-sandbox", "boot", pod)
	killed, err := playing(t, says(cri.PodSandboxState_SANDBOX_READY, pid)).Kill(t.Context(), "sb-1")
	if err != nil || len(killed) != 1 || killed[0] != pid {
		t.Errorf("killed %v, %v", killed, err)
	}
}

func TestOnlyPodsOfTheNamespaceAndTheHandlerAreChosen(t *testing.T) {
	for _, c := range []struct {
		pods []*cri.PodSandbox
		want problem.Code
	}{
		{nil, problem.SandboxNotFound},
		{[]*cri.PodSandbox{one("sb-1", "kube-system", "runsc")}, problem.SandboxNotFound},
		{[]*cri.PodSandbox{one("sb-2", "rollbox-sandboxes", "runsc")}, problem.SandboxNotFound},
		{[]*cri.PodSandbox{one("sb-1", "rollbox-sandboxes", "")}, problem.Unsupported},
		{[]*cri.PodSandbox{one("sb-2", "kube-system", ""), one("sb-1", "rollbox-sandboxes", "runsc")}, ""},
	} {
		chosen, err := killer().pods.Chosen("sb-1", c.pods)
		if c.want == "" {
			if err != nil || len(chosen) != 1 || chosen[0].GetMetadata().GetName() != "sb-1" {
				t.Errorf("chosen %v, %v", chosen, err)
			}
		} else if err == nil || problem.From(err).Code != c.want {
			t.Errorf("%v: %v, want %s", c.pods, err, c.want)
		}
	}
}

func TestAnIdThatIsNoneIsRefusedBeforeAnythingIsAsked(t *testing.T) {
	for _, id := range []string{"", "sb-", "kube-proxy-x", "sb-1/../x", "sb-A", "sb-1 "} {
		if _, err := killer().Kill(context.Background(), id); err == nil || problem.From(err).Code != problem.InvalidArgument {
			t.Errorf("%q: %v", id, err)
		}
	}
}

func TestTheProcessIsReadFromWhatContainerdTells(t *testing.T) {
	if pid, err := pidOf(`{"pid":4711,"processStatus":"running"}`); pid != 4711 || err != nil {
		t.Errorf("%d, %v", pid, err)
	}
	for _, bad := range []string{"", "[]", `{"pid":-1}`, `{"pid":"1"}`} {
		if _, err := pidOf(bad); err == nil || problem.From(err).Code != problem.Unsupported {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
