package node

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	containers "github.com/containerd/containerd/api/services/containers/v1"
	"github.com/containerd/containerd/api/types"
	"github.com/containerd/containerd/api/types/task"

	"rollbox.dev/node/doubles/played"
	"rollbox.dev/node/internal/containerd"
	"rollbox.dev/node/internal/install/plan"
	"rollbox.dev/node/internal/install/supervisor"
)

func at(t *testing.T, runtime *played.Containerd, texts map[string]string) (*Node, string) {
	t.Helper()
	folder := t.TempDir()
	for name, text := range texts {
		path := filepath.Join(folder, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	opened, err := containerd.Open(runtime.Start(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = opened.Close() })
	wanted := &plan.Wanted{Folder: filepath.Join(folder, "opt"), Handler: "runsc"}
	return &Node{Runtime: opened, Supervisor: &supervisor.Processes{}, Kept: "process", Main: filepath.Join(folder, "config.toml"), Wanted: wanted}, folder
}

func facts(t *testing.T, n *Node) *plan.Facts {
	t.Helper()
	found, err := n.Facts(t.Context(), plan.Record{})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestSettingsAreReadInContainerdsOrder(t *testing.T) {
	n, folder := at(t, &played.Containerd{}, map[string]string{
		"config.toml":         "version = 3\nimports = ['b.toml', 'conf.d/*.toml', 'missing.toml', '/elsewhere/*.toml', 'none/*.toml']\n",
		"b.toml":              "version = 3\nimports = ['conf.d/a.toml', 'config.toml', 'c.toml']\n",
		"c.toml":              "version = 3\n",
		"conf.d/a.toml":       "version = 3\n",
		"conf.d/rollbox.toml": "version = 3\n",
	})
	found := facts(t, n)
	var read []string
	for _, file := range found.Files {
		name, _ := filepath.Rel(folder, file.Path)
		read = append(read, name)
	}
	if wanted := []string{"config.toml", "b.toml", "conf.d/a.toml", "c.toml"}; !reflect.DeepEqual(read, wanted) {
		t.Errorf("%v, not %v", read, wanted)
	}
	if wanted := []string{"/elsewhere/*.toml", filepath.Join(folder, "missing.toml")}; !reflect.DeepEqual(found.Unseen, wanted) {
		t.Errorf("not seen: %v, not %v", found.Unseen, wanted)
	}
	if _, there := found.Present[plan.AdditionPath(n.Main)]; !there || found.Containerd != "v2.1.9" || found.Kernel == "" {
		t.Errorf("%+v", found)
	}
}

func TestEverythingThatRunsInGVisorIsLive(t *testing.T) {
	container := func(pod, runtime string) *containers.Container {
		labels := map[string]string{"io.kubernetes.pod.namespace": "sandboxes", "io.kubernetes.pod.name": pod}
		return &containers.Container{ID: pod, Runtime: &containers.Container_Runtime{Name: runtime}, Labels: labels}
	}
	// None of these runtimes is in the settings: a handler may have gone, and a pod be on its way out.
	made := map[string]*containers.Container{}
	for _, one := range []*containers.Container{
		container("runs", "io.containerd.runsc.v1"), container("hangs", "/opt/rollbox/bin/containerd-shim-runsc-v1"),
		container("ended", "io.containerd.runsc.v1"), container("none", "io.containerd.runsc.v1"), container("other", "io.containerd.runc.v2"),
	} {
		made[one.GetID()] = one
	}
	runtime := &played.Containerd{
		Made: made,
		Tasks: []*task.Process{
			{ID: "runs", Status: task.Status_RUNNING}, {ID: "hangs", Status: task.Status_UNKNOWN}, {ID: "ended", Status: task.Status_STOPPED},
			{ID: "other", Status: task.Status_RUNNING},
		},
	}
	n, _ := at(t, runtime, map[string]string{"config.toml": "version = 3\n"})
	if live := facts(t, n).Live; !reflect.DeepEqual(live, []string{"sandboxes/hangs", "sandboxes/runs"}) {
		t.Errorf("%v", live)
	}
}

func TestAFileThatIsALinkIsNotReplaced(t *testing.T) {
	n, folder := at(t, &played.Containerd{}, map[string]string{"real.toml": "version = 3\n"})
	if err := os.Symlink("real.toml", filepath.Join(folder, "config.toml")); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Facts(t.Context(), plan.Record{}); err == nil {
		t.Error("it is taken")
	}
}

func TestTheEndOfTheLastPodInGVisorIsHeardOf(t *testing.T) {
	runtime := &played.Containerd{
		Made:   map[string]*containers.Container{"runs": {ID: "runs", Runtime: &containers.Container_Runtime{Name: "io.containerd.runsc.v1"}}},
		Tasks:  []*task.Process{{ID: "runs", Status: task.Status_RUNNING}},
		Events: make(chan *types.Envelope),
	}
	n, _ := at(t, runtime, map[string]string{"config.toml": "version = 3\n"})
	drained := make(chan error, 1)
	go func() { drained <- n.Drained(t.Context()) }()
	// Another task: it goes on.
	runtime.Events <- &types.Envelope{Topic: "/tasks/exit"}
	select {
	case err := <-drained:
		t.Fatalf("while a pod runs: %v", err)
	default:
	}
	runtime.Mutex.Lock()
	runtime.Tasks = nil
	runtime.Mutex.Unlock()
	runtime.Events <- &types.Envelope{Topic: "/tasks/exit"}
	if err := <-drained; err != nil {
		t.Error(err)
	}
}
