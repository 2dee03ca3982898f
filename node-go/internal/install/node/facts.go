// Package node looks at the node that it runs on, for an install, and tries what was installed.
package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	containers "github.com/containerd/containerd/api/services/containers/v1"
	tasks "github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/api/types/task"
	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"rollbox.dev/node/internal/containerd"
	"rollbox.dev/node/internal/files"
	"rollbox.dev/node/internal/install/config"
	"rollbox.dev/node/internal/install/plan"
	"rollbox.dev/node/internal/install/supervisor"
)

// looksIn is how long containerd and the supervisor may take to answer all that is asked of them.
const looksIn = time.Minute

// Node is this node.
type Node struct {
	Runtime    *containerd.Runtime
	Supervisor supervisor.Supervisor
	// Kept is how the supervisor is called, Sockets are those of the services.
	Kept    string
	Sockets map[string]string
	// Main is containerd's first settings file.
	Main   string
	Wanted *plan.Wanted
}

// Facts looks at everything that a plan depends on, within looksIn.
func (n *Node) Facts(ctx context.Context, record plan.Record) (*plan.Facts, error) {
	ctx, cancel := context.WithTimeout(ctx, looksIn)
	defer cancel()
	facts := &plan.Facts{Main: n.Main, Supervisor: n.Kept, Record: record, Running: map[string]bool{}}
	return facts, errors.Join(n.versions(ctx, facts), n.settings(facts), n.present(facts), n.services(ctx, facts), n.handlers(ctx, facts), n.live(ctx, facts))
}

func (n *Node) versions(ctx context.Context, facts *plan.Facts) error {
	var kernel unix.Utsname
	if err := unix.Uname(&kernel); err != nil {
		return err
	}
	facts.Kernel = unix.ByteSliceToString(kernel.Release[:])
	version, err := n.Runtime.Containers.Version(ctx, &cri.VersionRequest{})
	if err != nil {
		return containerd.Failed("ask for containerd's version", err)
	}
	facts.Containerd = version.GetRuntimeVersion()
	return nil
}

// settings reads the files in containerd's own order.
func (n *Node) settings(facts *plan.Facts) error {
	pending, read := []string{n.Main}, map[string]bool{plan.AdditionPath(n.Main): true}
	for len(pending) > 0 {
		path := pending[0]
		pending = pending[1:]
		if read[path] {
			continue
		}
		read[path] = true
		text, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			if path != n.Main {
				facts.Unseen = append(facts.Unseen, path)
			}
			continue
		}
		if err != nil {
			return err
		}
		file := config.File{Path: path, Text: text}
		facts.Files = append(facts.Files, file)
		if one, err := config.Read([]config.File{file}); err == nil {
			pending = append(pending, imported(facts, path, one.Imports)...)
		}
	}
	return nil
}

// imported are the files of imports; what is in a folder that is not here cannot be known.
func imported(facts *plan.Facts, of string, imports []string) (paths []string) {
	for _, one := range imports {
		pattern := config.Resolve(of, one)
		if !strings.Contains(pattern, "*") {
			paths = append(paths, pattern)
			continue
		}
		folder := filepath.Dir(pattern)
		_, err := os.Stat(folder)
		if err != nil && !strings.HasPrefix(folder, filepath.Dir(of)+"/") {
			facts.Unseen = append(facts.Unseen, pattern)
		}
		matches, _ := filepath.Glob(pattern)
		paths = append(paths, matches...)
	}
	return paths
}

func (n *Node) present(facts *plan.Facts) error {
	facts.Present = map[string]plan.File{}
	paths := n.Wanted.Paths(facts)
	for path := range facts.Record.Files {
		paths = append(paths, path)
	}
	for _, path := range paths {
		is, err := files.Look(path)
		if err != nil {
			return fmt.Errorf("look at what is there: %w", err)
		}
		if is != nil {
			facts.Present[path] = *is
		}
	}
	return nil
}

func (n *Node) services(ctx context.Context, facts *plan.Facts) (err error) {
	for _, name := range n.Wanted.Services() {
		if facts.Running[name], err = n.Supervisor.Running(ctx, supervisor.Service{Name: name, Socket: n.Sockets[name]}); err != nil {
			return err
		}
	}
	return nil
}

func (n *Node) handlers(ctx context.Context, facts *plan.Facts) (err error) {
	facts.Handlers, err = n.offered(ctx)
	return err
}

func (n *Node) offered(ctx context.Context) (names []string, err error) {
	status, err := n.Runtime.Containers.Status(ctx, &cri.StatusRequest{})
	if err != nil {
		return nil, containerd.Failed("ask for containerd's runtimes", err)
	}
	for _, one := range status.GetRuntimeHandlers() {
		names = append(names, one.GetName())
	}
	return names, nil
}

// live are the pods of which anything runs in gVisor, whatever containerd's settings say now, and whether or not
// Kubernetes still wants them: their kernels need the programs that are there.
func (n *Node) live(ctx context.Context, facts *plan.Facts) (err error) {
	facts.Live, err = n.Live(ctx)
	return err
}

// Live is what of Facts may change at any moment, within looksIn.
func (n *Node) Live(ctx context.Context) (names []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, looksIn)
	defer cancel()
	known, err := n.Runtime.Defined.List(ctx, &containers.ListContainersRequest{})
	if err != nil {
		return nil, containerd.Failed("list the containers", err)
	}
	found, err := n.Runtime.Tasks.List(ctx, &tasks.ListTasksRequest{})
	if err != nil {
		return nil, containerd.Failed("list what runs", err)
	}
	states := map[string]task.Status{}
	for _, one := range found.GetTasks() {
		states[one.GetID()] = one.GetStatus()
	}
	for _, one := range known.GetContainers() {
		state, there := states[one.GetID()]
		if !there || state == task.Status_STOPPED || !strings.Contains(one.GetRuntime().GetName(), "runsc") {
			continue
		}
		name := one.GetID()
		if pod := one.GetLabels()["io.kubernetes.pod.name"]; pod != "" {
			name = one.GetLabels()["io.kubernetes.pod.namespace"] + "/" + pod
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}
