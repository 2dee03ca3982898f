package node

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	containers "github.com/containerd/containerd/api/services/containers/v1"
	tasks "github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/api/types"
	"github.com/containerd/containerd/api/types/runtimeoptions/v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"rollbox.dev/node/internal/containerd"
	"rollbox.dev/node/internal/install/plan"
)

// The container is in a namespace of its own: the kubelet ends pods that it does not know. It has no network, so none
// has to be there, and no image, so none is pulled.
const (
	checks  = "rollbox"
	checkID = "rollbox-install-check"
	// Types without the prefix that protobuf itself gives them.
	optionsType = "runtimeoptions.v1.Options"
	processType = "types.containerd.io/opencontainers/runtime-spec/1/Process"
	specType    = "types.containerd.io/opencontainers/runtime-spec/1/Spec"
	// InGVisor and Hold are the verbs of this program that the container runs: the one tells, the other only stays.
	InGVisor = "in-gvisor"
	Hold     = "hold"
	sigkill  = 9
	telling  = "telling"
)

// IsGVisor tells whether this process runs in gVisor.
func IsGVisor() bool {
	version, err := os.ReadFile("/proc/version")
	return err == nil && strings.Contains(strings.ToLower(string(version)), "gvisor")
}

// runs has this program tell from inside that the kernel is gVisor's.
func (n *Node) runs(ctx context.Context) (err error) {
	ctx = containerd.In(ctx, checks)
	// Of a check that was stopped.
	for _, left := range n.left(ctx) {
		n.forget(ctx, left)
	}
	id := "install-check-" + rand.Text()
	defer n.forget(context.WithoutCancel(ctx), id)
	made, err := n.container(id)
	if err != nil {
		return err
	}
	if _, err := n.Runtime.Defined.Create(ctx, &containers.CreateContainerRequest{Container: made}); err != nil {
		return fmt.Errorf("make a container: %w", err)
	}
	// The folder has nothing but programs that everybody may read.
	root := &types.Mount{Type: "bind", Source: n.Wanted.Bin(), Options: []string{"rbind", "ro"}}
	task := &tasks.CreateTaskRequest{ContainerID: id, Rootfs: []*types.Mount{root}}
	if _, err := n.Runtime.Tasks.Create(ctx, task); err != nil {
		return fmt.Errorf("start gVisor: %w", err)
	}
	if _, err := n.Runtime.Tasks.Start(ctx, &tasks.StartRequest{ContainerID: id}); err != nil {
		return fmt.Errorf("start a command in gVisor: %w", err)
	}
	return n.tells(ctx, id)
}

// tells runs a second process: of a sandbox that ends by itself the shim may come too late to know how.
func (n *Node) tells(ctx context.Context, id string) error {
	process, err := json.Marshal(command(InGVisor))
	if err != nil {
		return err
	}
	spec := &anypb.Any{TypeUrl: processType, Value: process}
	if _, err := n.Runtime.Tasks.Exec(ctx, &tasks.ExecProcessRequest{ContainerID: id, ExecID: telling, Spec: spec}); err != nil {
		return fmt.Errorf("make a process in gVisor: %w", err)
	}
	if _, err := n.Runtime.Tasks.Start(ctx, &tasks.StartRequest{ContainerID: id, ExecID: telling}); err != nil {
		return fmt.Errorf("start a process in gVisor: %w", err)
	}
	ended, err := n.Runtime.Tasks.Wait(ctx, &tasks.WaitRequest{ContainerID: id, ExecID: telling})
	if err != nil {
		return fmt.Errorf("wait for a process in gVisor: %w", err)
	}
	if ended.GetExitStatus() != 0 {
		return fmt.Errorf("a process in gVisor ended with %d", ended.GetExitStatus())
	}
	return nil
}

func command(verb string) map[string]any {
	const nobody = 65534
	return map[string]any{
		"args": []string{"/" + plan.Checker, verb}, "cwd": "/", "user": map[string]int{"uid": nobody, "gid": nobody},
		"noNewPrivileges": true,
	}
}

func (n *Node) container(id string) (*containers.Container, error) {
	options, err := proto.Marshal(&runtimeoptions.Options{TypeUrl: "io.containerd.runsc.v1.options", ConfigPath: n.Wanted.ShimSettings()})
	if err != nil {
		return nil, err
	}
	spec, err := json.Marshal(n.spec())
	if err != nil {
		return nil, err
	}
	return &containers.Container{
		ID:      id,
		Runtime: &containers.Container_Runtime{Name: filepath.Join(n.Wanted.Bin(), plan.Shim), Options: &anypb.Any{TypeUrl: optionsType, Value: options}},
		Spec:    &anypb.Any{TypeUrl: specType, Value: spec},
	}, nil
}

func (n *Node) spec() map[string]any {
	var namespaces []map[string]string
	for _, kind := range []string{"pid", "ipc", "uts", "mount", "network"} {
		namespaces = append(namespaces, map[string]string{"type": kind})
	}
	return map[string]any{
		"ociVersion": "1.1.0",
		"process":    command(Hold),
		// Of anything but a sandbox the shim would wait for the output of runsc, which the kernel holds as long as it runs.
		"annotations": map[string]string{"io.kubernetes.cri.container-type": "sandbox"},
		"root":        map[string]any{"path": "rootfs", "readonly": true},
		"mounts":      []map[string]any{{"destination": "/proc", "type": "proc", "source": "proc"}},
		"linux":       map[string]any{"namespaces": namespaces},
	}
}

func (n *Node) left(ctx context.Context) (ids []string) {
	found, err := n.Runtime.Defined.List(ctx, &containers.ListContainersRequest{})
	if err != nil {
		return nil
	}
	for _, one := range found.GetContainers() {
		ids = append(ids, one.GetID())
	}
	return ids
}

// forget removes what there is of the container.
func (n *Node) forget(ctx context.Context, id string) {
	ctx, cancel := context.WithTimeout(ctx, runsIn)
	defer cancel()
	_, killed := n.Runtime.Tasks.Kill(ctx, &tasks.KillRequest{ContainerID: id, Signal: sigkill, All: true})
	if killed == nil {
		_, killed = n.Runtime.Tasks.Wait(ctx, &tasks.WaitRequest{ContainerID: id})
	}
	_, deleted := n.Runtime.Tasks.Delete(ctx, &tasks.DeleteTaskRequest{ContainerID: id})
	_, gone := n.Runtime.Defined.Delete(ctx, &containers.DeleteContainerRequest{ID: id})
	// The next check tries again.
	_ = errors.Join(killed, deleted, gone)
}
