package agent

import (
	"context"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"rollbox.dev/node/internal/containerd"
	"rollbox.dev/node/internal/problem"
	"rollbox.dev/node/internal/wire"
)

// Usage is containerd's word, which reads the control group of the pod: all of a gVisor kernel's processes are in it.
func (s *service) Usage(ctx context.Context, request *wire.UsageRequest) (*wire.UsageReport, error) {
	sandbox := request.GetSandboxId()
	found, err := s.pods.Find(ctx, sandbox)
	if err != nil {
		return nil, err
	}
	for _, pod := range found {
		if pod.GetState() != cri.PodSandboxState_SANDBOX_READY {
			continue
		}
		told, err := s.runtime.Containers.PodSandboxStats(ctx, &cri.PodSandboxStatsRequest{PodSandboxId: pod.GetId()})
		if err != nil {
			return nil, containerd.Failed("ask what "+sandbox+" uses", err)
		}
		used := told.GetStats().GetLinux().GetCpu().GetUsageCoreNanoSeconds()
		if used == nil {
			return nil, problem.New(problem.Unsupported, "the container runtime does not count the CPU time of pods, as containerd does")
		}
		return &wire.UsageReport{CpuUs: used.GetValue() / 1000}, nil
	}
	return nil, problem.New(problem.SandboxLost, "%s has no pod that runs", sandbox)
}
