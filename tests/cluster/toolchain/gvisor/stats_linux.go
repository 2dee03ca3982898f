// Added to gVisor's pkg/shim/v1/runsc: statistics of a container without a process for each.
package runsc

import (
	"context"

	cgroups "github.com/containerd/cgroups/v3"
	task "github.com/containerd/containerd/api/runtime/task/v2"
	runc "github.com/containerd/go-runc"
	"rollbox.dev/cluster/gvisor/usage"
)

// usageOf is what a container takes of its node. All processes of a sandbox are in one control group, so it is divided as
// runsc does: nothing for the container that only holds the sandbox, equal parts for the others. It takes no lock that a
// start or an end of the container holds. Where the control groups cannot be read, runsc is asked.
func (s *runscService) usageOf(ctx context.Context, c *Container) (*task.StatsResponse, error) {
	s.mu.Lock()
	others := uint64(len(s.containers)) - 1
	s.mu.Unlock()
	used, err := usage.Of(c.Pid())
	if err != nil {
		return c.Stats(ctx)
	}
	switch {
	case others == 0:
	case c.task.Sandbox:
		used = usage.Usage{}
	default:
		used = used.Share(others)
	}
	stats := &runc.Stats{Pids: runc.Pids{Current: used.Tasks}}
	stats.Cpu.Usage.Total, stats.Memory.Usage.Usage = used.CPUNanoseconds, used.MemoryBytes
	if c.cgroup == CgroupMode(cgroups.Unified) {
		return c.getV2Stats(stats)
	}
	return c.getV1Stats(stats)
}
