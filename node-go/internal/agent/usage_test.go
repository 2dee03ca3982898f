package agent

import (
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"rollbox.dev/node/doubles/played"
	"rollbox.dev/node/internal/problem"
	"rollbox.dev/node/internal/wire"
)

func podOf(id, name, handler string, state cri.PodSandboxState) *cri.PodSandbox {
	return &cri.PodSandbox{
		Id: id, RuntimeHandler: handler, State: state,
		Metadata: &cri.PodSandboxMetadata{Name: name, Namespace: "rollbox-sandboxes"},
	}
}

func TestCPUTimeIsThatOfThePodThatRuns(t *testing.T) {
	node := serve(t, &played.Containerd{
		Pods: []*cri.PodSandbox{
			podOf("before", "sb-1", "runsc", cri.PodSandboxState_SANDBOX_NOTREADY),
			podOf("now", "sb-1", "runsc", cri.PodSandboxState_SANDBOX_READY),
			podOf("over", "sb-2", "runsc", cri.PodSandboxState_SANDBOX_NOTREADY),
			podOf("foreign", "sb-3", "runc", cri.PodSandboxState_SANDBOX_READY),
			podOf("uncounted", "sb-4", "runsc", cri.PodSandboxState_SANDBOX_READY),
		},
		Used: map[string]uint64{"before": 1, "now": 2_491_000_999},
	}).controlPlane(t)
	told, err := node.Usage(t.Context(), &wire.UsageRequest{SandboxId: "sb-1"})
	if err != nil || told.GetCpuUs() != 2_491_000 {
		t.Errorf("%v, %v", told, err)
	}
	for id, code := range map[string]problem.Code{
		"sb-2": problem.SandboxLost, "sb-3": problem.Unsupported, "sb-4": problem.Unsupported, "sb-5": problem.SandboxNotFound,
		"no id": problem.InvalidArgument,
	} {
		var trailer metadata.MD
		_, err := node.Usage(t.Context(), &wire.UsageRequest{SandboxId: id}, grpc.Trailer(&trailer))
		if found := problem.Received(trailer); err == nil || found == nil || found.Code != code {
			t.Errorf("%s: %v, %v", id, err, found)
		}
	}
}
