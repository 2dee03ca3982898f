package node

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"rollbox.dev/node/internal/containerd"
	"rollbox.dev/node/internal/install/keeper"
	"rollbox.dev/node/internal/install/plan"
	"rollbox.dev/node/internal/played"
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
	return &Node{Runtime: opened, Keeper: &keeper.Processes{}, Kept: "process", Main: filepath.Join(folder, "config.toml"), Wanted: wanted}, folder
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

func TestPodsOfEveryRuntimeOfGVisorAreSeen(t *testing.T) {
	pod := func(name, handler string) *cri.PodSandbox {
		return &cri.PodSandbox{Metadata: &cri.PodSandboxMetadata{Name: name, Namespace: "sandboxes"}, RuntimeHandler: handler}
	}
	runtime := &played.Containerd{Pods: []*cri.PodSandbox{pod("b", "old"), pod("a", "runsc"), pod("c", ""), pod("d", "kata")}}
	n, _ := at(t, runtime, map[string]string{
		"config.toml": "version = 2\n[plugins.'io.containerd.grpc.v1.cri'.containerd.runtimes.old]\nruntime_type = 'io.containerd.runsc.v1'\n",
	})
	if live := facts(t, n).Live; !reflect.DeepEqual(live, []string{"sandboxes/a", "sandboxes/b"}) {
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
