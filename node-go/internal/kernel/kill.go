// Package kernel ends gVisor kernels that answer nobody: a kernel that is stopped or hangs lets its shim wait for ever,
// and the kubelet with it.
package kernel

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"rollbox.dev/node/internal/containerd"
	"rollbox.dev/node/internal/pods"
	"rollbox.dev/node/internal/problem"
	"rollbox.dev/node/internal/process"
)

const (
	// How long a killed process may take to end; the kernel has to take its memory back.
	endsWithin = 10 * time.Second
	// The runtime hears of a kernel's end a moment later.
	looks     = 6
	lookEvery = 500 * time.Millisecond
)

// Killer ends the kernels of the sandboxes in one namespace.
type Killer struct {
	runtime   *containerd.Runtime
	pods      *pods.Finder
	log       *slog.Logger
	lookEvery time.Duration
}

// NewKiller returns one for the pods that are found; it touches no others.
func NewKiller(runtime *containerd.Runtime, found *pods.Finder, log *slog.Logger) *Killer {
	return &Killer{runtime: runtime, pods: found, log: log, lookEvery: lookEvery}
}

// Kill ends the kernel of a sandbox and returns its process ids once they are gone; none if nothing of it runs. A kernel
// that the runtime says runs and that is not found is a failure.
func (k *Killer) Kill(ctx context.Context, sandbox string) ([]uint32, error) {
	found, err := k.pods.Find(ctx, sandbox)
	if err != nil {
		return nil, err
	}
	var killed []uint32
	for _, pod := range found {
		pid, err := k.ended(ctx, pod)
		if err != nil {
			return nil, err
		}
		if pid != 0 {
			killed = append(killed, pid)
		}
	}
	return killed, nil
}

// ended returns the process that was killed for a pod; 0: nothing of its kernel runs.
func (k *Killer) ended(ctx context.Context, pod *cri.PodSandbox) (uint32, error) {
	pid := uint32(0)
	for range looks {
		now, ready, err := k.process(ctx, pod)
		if err != nil {
			return 0, err
		}
		killed, err := k.end(ctx, pod, now)
		if err != nil || killed {
			return now, err
		}
		if !ready {
			return 0, nil
		}
		pid = now
		select {
		case <-time.After(k.lookEvery):
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
	detail := "nothing of %s was killed: the runtime says that its pod %s runs with process %d, which is no kernel of it here"
	return 0, problem.New(problem.Internal, detail, pod.GetMetadata().GetName(), pod.GetId(), pid)
}

// process returns the process of a pod's kernel, 0 for none, and whether the pod runs, both by the runtime's word.
func (k *Killer) process(ctx context.Context, pod *cri.PodSandbox) (pid uint32, ready bool, err error) {
	status, err := k.runtime.Containers.PodSandboxStatus(ctx, &cri.PodSandboxStatusRequest{
		PodSandboxId: pod.GetId(), Verbose: true,
	})
	if err != nil {
		return 0, false, containerd.Failed("look at the pod "+pod.GetMetadata().GetName(), err)
	}
	pid, err = pidOf(status.GetInfo()["info"])
	return pid, status.GetStatus().GetState() == cri.PodSandboxState_SANDBOX_READY, err
}

func pidOf(info string) (uint32, error) {
	var read struct {
		Pid uint32 `json:"pid"`
	}
	if err := json.Unmarshal([]byte(info), &read); err != nil {
		return 0, problem.New(problem.Unsupported, "the runtime does not tell the process of a pod: %w", err)
	}
	return read.Pid, nil
}

// end kills a process that is this pod's kernel; false: it is not, or not any more.
func (k *Killer) end(ctx context.Context, pod *cri.PodSandbox, pid uint32) (bool, error) {
	if pid == 0 {
		return false, nil
	}
	held, err := process.Hold(pid)
	if err != nil {
		return false, problem.New(problem.Internal, "process %d of %s: %w", pid, pod.GetMetadata().GetName(), err)
	}
	if held == nil {
		return false, nil
	}
	defer held.Close()
	words, err := held.CommandLine()
	if err != nil {
		return false, problem.New(problem.Internal, "process %d of %s: %w", pid, pod.GetMetadata().GetName(), err)
	}
	if !isKernel(words, pod.GetId()) {
		k.log.Error("not a sandbox's kernel, left alone", "pid", pid, "sandbox_id", pod.GetMetadata().GetName())
		return false, nil
	}
	k.log.Warn("killing a sandbox's kernel", "pid", pid, "sandbox_id", pod.GetMetadata().GetName(), "pod", pod.GetId())
	if err := kill(ctx, held); err != nil {
		return false, problem.New(problem.Internal, "kill process %d of %s: %w", pid, pod.GetMetadata().GetName(), err)
	}
	return true, nil
}

func kill(ctx context.Context, held *process.Process) error {
	if err := held.Kill(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, endsWithin)
	defer cancel()
	return held.Ended(ctx)
}

// isKernel says whether a command line is that of the gVisor kernel of a pod: runsc names the process so, and the last
// of its arguments is the id of the pod, which is never used again.
func isKernel(words []string, pod string) bool {
	return len(words) > 2 && words[0] == "runsc-sandbox" && pod != "" && words[len(words)-1] == pod
}
