// Package pods finds the pods of sandboxes on this node, and no others.
package pods

import (
	"context"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"rollbox.dev/node/internal/containerd"
	"rollbox.dev/node/internal/problem"
)

const (
	podName       = "io.kubernetes.pod.name"
	podNamespace  = "io.kubernetes.pod.namespace"
	containerName = "io.kubernetes.container.name"
)

const (
	// How long a container is waited for that was made and does not run yet.
	runsIn    = 5 * time.Second
	lookEvery = 50 * time.Millisecond
)

// What is below these is never on the root file system (image_volumes.rs of the sidecar).
var notOnDisk = regexp.MustCompile(`^/(dev|proc|sys)(/|$)`)

var sandboxID = regexp.MustCompile(`^sb-[a-z0-9]{1,60}$`)

// Finder finds the pods of one namespace that have one of some runtime handlers.
type Finder struct {
	Runtime   *containerd.Runtime
	Namespace string
	Handlers  []string
}

// Find returns the sandbox's pod as the runtime knows it, with each attempt to start it.
func (f *Finder) Find(ctx context.Context, sandbox string) ([]*cri.PodSandbox, error) {
	if !sandboxID.MatchString(sandbox) {
		return nil, problem.New(problem.InvalidArgument, "%.100q is no sandbox's id", sandbox)
	}
	labels := map[string]string{podName: sandbox, podNamespace: f.Namespace}
	listed, err := f.Runtime.Containers.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{
		Filter: &cri.PodSandboxFilter{LabelSelector: labels},
	})
	if err != nil {
		return nil, containerd.Failed("look for the pod "+sandbox, err)
	}
	return f.Chosen(sandbox, listed.GetItems())
}

// Chosen checks what the runtime has found, since a filter that it does not understand would select everything.
func (f *Finder) Chosen(sandbox string, pods []*cri.PodSandbox) ([]*cri.PodSandbox, error) {
	var found []*cri.PodSandbox
	for _, pod := range pods {
		about := pod.GetMetadata()
		if about.GetName() != sandbox || about.GetNamespace() != f.Namespace {
			continue
		}
		if !slices.Contains(f.Handlers, pod.GetRuntimeHandler()) {
			detail := "the pod %s runs under %q, and only sandboxes under %s are worked on"
			words := strings.Join(f.Handlers, ", ")
			return nil, problem.New(problem.Unsupported, detail, sandbox, pod.GetRuntimeHandler(), words)
		}
		found = append(found, pod)
	}
	if len(found) == 0 {
		return nil, problem.New(problem.SandboxNotFound, "this node has no pod %s in %s", sandbox, f.Namespace)
	}
	return found, nil
}

// Running returns all pods of sandboxes that run.
func (f *Finder) Running(ctx context.Context) ([]*cri.PodSandbox, error) {
	listed, err := f.Runtime.Containers.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{
		Filter: &cri.PodSandboxFilter{LabelSelector: map[string]string{podNamespace: f.Namespace}},
	})
	if err != nil {
		return nil, containerd.Failed("look for the pods of sandboxes", err)
	}
	return slices.DeleteFunc(listed.GetItems(), func(pod *cri.PodSandbox) bool {
		about := pod.GetMetadata()
		return about.GetNamespace() != f.Namespace || !sandboxID.MatchString(about.GetName()) ||
			!slices.Contains(f.Handlers, pod.GetRuntimeHandler()) || pod.GetState() != cri.PodSandboxState_SANDBOX_READY
	}), nil
}

// Container is one that runs.
type Container struct {
	Pod, ID string
	// Mounts are the paths in it at which something is mounted; of these, Volumes are those that its image declares. Not
	// those that the sidecar has detached: they are folders of the root file system then.
	Mounts, Volumes []string
}

// Container returns the running container of a sandbox that has a name. Its sidecar may say that it is ready a moment before
// the runtime says that the container runs: one that was made and has not ended is waited for.
func (f *Finder) Container(ctx context.Context, sandbox, name string) (*Container, error) {
	late := time.After(runsIn)
	for {
		found, begins, err := f.container(ctx, sandbox, name)
		if !begins {
			return found, err
		}
		select {
		case <-time.After(lookEvery):
		case <-late:
			return nil, err
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// container looks once; an error comes with whether there is a container that may run soon.
func (f *Finder) container(ctx context.Context, sandbox, name string) (*Container, bool, error) {
	found, err := f.Find(ctx, sandbox)
	if err != nil {
		return nil, false, err
	}
	begins := false
	for _, pod := range found {
		listed, err := f.Runtime.Containers.ListContainers(ctx, &cri.ListContainersRequest{
			Filter: &cri.ContainerFilter{PodSandboxId: pod.GetId(), LabelSelector: map[string]string{containerName: name}},
		})
		if err != nil {
			return nil, false, containerd.Failed("look for the container "+name+" of "+sandbox, err)
		}
		for _, one := range listed.GetContainers() {
			if one.GetPodSandboxId() != pod.GetId() || one.GetLabels()[containerName] != name {
				continue
			}
			switch one.GetState() {
			case cri.ContainerState_CONTAINER_RUNNING:
				mounts, volumes, err := f.mounts(ctx, one.GetId())
				return &Container{pod.GetId(), one.GetId(), mounts, volumes}, false, err
			case cri.ContainerState_CONTAINER_CREATED:
				begins = true
			}
		}
	}
	return nil, begins, problem.New(problem.SandboxLost, "%s has no container %s that runs", sandbox, name)
}

func (f *Finder) mounts(ctx context.Context, container string) (mounts, volumes []string, err error) {
	status, err := f.Runtime.Containers.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: container, Verbose: true})
	if err != nil {
		return nil, nil, containerd.Failed("look at the container "+container, err)
	}
	var read struct {
		Spec *struct {
			Mounts []struct {
				Destination string `json:"destination"`
				Source      string `json:"source"`
			} `json:"mounts"`
		} `json:"runtimeSpec"`
	}
	if err := json.Unmarshal([]byte(status.GetInfo()["info"]), &read); err != nil || read.Spec == nil {
		return nil, nil, problem.New(problem.Unsupported, "the runtime does not tell what is mounted in a container, as containerd does")
	}
	for _, one := range read.Spec.Mounts {
		place := strings.TrimSuffix(one.Destination, "/")
		// Where containerd makes a folder for each.
		volume := strings.Contains(one.Source, "/containers/"+container+"/volumes/")
		if volume && !notOnDisk.MatchString(place) {
			continue
		}
		mounts = append(mounts, place)
		if volume {
			volumes = append(volumes, place)
		}
	}
	return mounts, volumes, nil
}
