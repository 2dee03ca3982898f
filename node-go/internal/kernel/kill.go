// Package kernel ends gVisor kernels that answer nobody: a kernel that is stopped or hangs lets its shim wait for ever,
// and the kubelet with it.
package kernel

import (
	"context"
	"encoding/json"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"rollbox.dev/node/internal/containerd"
	"rollbox.dev/node/internal/problem"
	"rollbox.dev/node/internal/process"
)

const (
	podName      = "io.kubernetes.pod.name"
	podNamespace = "io.kubernetes.pod.namespace"
	// How long a killed process may take to end; the kernel has to take its memory back.
	endsWithin = 10 * time.Second
	// The runtime hears of a kernel's end a moment later.
	looks     = 6
	lookEvery = 500 * time.Millisecond
)

var sandboxID = regexp.MustCompile(`^sb-[a-z0-9]{1,60}$`)

// Killer ends the kernels of the sandboxes in one namespace.
type Killer struct {
	runtime   *containerd.Runtime
	namespace string
	handlers  []string
	log       *slog.Logger
	lookEvery time.Duration
}

// NewKiller returns one for the pods of a namespace that have one of some runtime handlers; it touches no others.
func NewKiller(runtime *containerd.Runtime, namespace string, handlers []string, log *slog.Logger) *Killer {
	return &Killer{runtime: runtime, namespace: namespace, handlers: handlers, log: log, lookEvery: lookEvery}
}

// Kill ends the kernel of a sandbox and returns its process ids once they are gone; none if nothing of it runs. A kernel
// that the runtime says runs and that is not found is a failure.
func (k *Killer) Kill(ctx context.Context, sandbox string) ([]uint32, error) {
	if !sandboxID.MatchString(sandbox) {
		return nil, problem.New(problem.InvalidArgument, "%q is no sandbox's id", sandbox)
	}
	pods, err := k.pods(ctx, sandbox)
	if err != nil {
		return nil, err
	}
	var killed []uint32
	for _, pod := range pods {
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

// pods returns the sandbox's pod as the runtime knows it, with each attempt to start it.
func (k *Killer) pods(ctx context.Context, sandbox string) ([]*cri.PodSandbox, error) {
	labels := map[string]string{podName: sandbox, podNamespace: k.namespace}
	listed, err := k.runtime.Containers.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{
		Filter: &cri.PodSandboxFilter{LabelSelector: labels},
	})
	if err != nil {
		return nil, containerd.Failed("look for the pod "+sandbox, err)
	}
	return k.chosen(sandbox, listed.GetItems())
}

// chosen checks what the runtime has found, since a filter that it does not understand would select everything.
func (k *Killer) chosen(sandbox string, pods []*cri.PodSandbox) ([]*cri.PodSandbox, error) {
	var found []*cri.PodSandbox
	for _, pod := range pods {
		about := pod.GetMetadata()
		if about.GetName() != sandbox || about.GetNamespace() != k.namespace {
			continue
		}
		if !slices.Contains(k.handlers, pod.GetRuntimeHandler()) {
			detail := "the pod %s runs under %q, and only kernels under %s are ended"
			words := strings.Join(k.handlers, ", ")
			return nil, problem.New(problem.Unsupported, detail, sandbox, pod.GetRuntimeHandler(), words)
		}
		found = append(found, pod)
	}
	if len(found) == 0 {
		return nil, problem.New(problem.SandboxNotFound, "this node has no pod %s in %s", sandbox, k.namespace)
	}
	return found, nil
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
