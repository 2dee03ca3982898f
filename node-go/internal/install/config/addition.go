package config

import (
	"bytes"
	"fmt"

	"github.com/pelletier/go-toml/v2"
)

// names of the parts of containerd's settings, by version.
var names = map[int64]struct {
	runtimes string
	images   []string
}{
	2: {runtimes: "io.containerd.grpc.v1.cri", images: []string{"io.containerd.grpc.v1.cri", "containerd"}},
	3: {runtimes: "io.containerd.cri.v1.runtime", images: []string{"io.containerd.cri.v1.images"}},
}

const transfer = "io.containerd.transfer.v1.local"

// Addition is what containerd gets besides the settings that it has.
type Addition struct {
	// Handler is the name of the runtime that runs gVisor.
	Handler string
	// Shim and Runsc are the paths of the shim and of its settings.
	Shim, Runsc string
	// Lazy is a second runtime, whose images are mounted while they are fetched; nil: none.
	Lazy *Lazy
	// Platform is that of the node, such as linux/amd64.
	Platform string
}

// Lazy is a runtime whose images another snapshotter has.
type Lazy struct{ Handler, Snapshotter, Socket, Root string }

// Text is the file that has the addition, in the version of the settings that are there.
func (a *Addition) Text(there *Settings) ([]byte, error) {
	tree := map[string]any{"version": there.Version}
	runtimes := map[string]any{a.Handler: a.runtime("")}
	plugins := map[string]any{}
	if a.Lazy != nil {
		runtimes[a.Lazy.Handler] = a.runtime(a.Lazy.Snapshotter)
		tree["proxy_plugins"] = map[string]any{a.Lazy.Snapshotter: a.proxy()}
		plugins["io.containerd.cri.v1.images"] = map[string]any{"runtime_platforms": map[string]any{
			a.Lazy.Handler: map[string]any{"platform": a.Platform, "snapshotter": a.Lazy.Snapshotter},
		}}
		plugins[transfer] = map[string]any{"unpack_config": a.unpacking(there)}
	}
	plugins[names[there.Version].runtimes] = map[string]any{"containerd": map[string]any{"runtimes": runtimes}}
	tree["plugins"] = plugins
	text := bytes.NewBufferString("# Written by rollbox-node install, and written again when it differs.\n")
	if err := toml.NewEncoder(text).Encode(tree); err != nil {
		return nil, fmt.Errorf("containerd's settings: %w", err)
	}
	return text.Bytes(), nil
}

func (a *Addition) runtime(snapshotter string) map[string]any {
	annotations := []string{"dev.gvisor.*"}
	made := map[string]any{
		"runtime_type": "io.containerd.runsc.v1", "runtime_path": a.Shim,
		"pod_annotations": annotations, "container_annotations": annotations,
		"options": map[string]any{"TypeUrl": "io.containerd.runsc.v1.options", "ConfigPath": a.Runsc},
	}
	if snapshotter != "" {
		made["snapshotter"] = snapshotter
	}
	return made
}

func (a *Addition) proxy() map[string]any {
	exports := map[string]any{"root": a.Lazy.Root, "enable_remote_snapshot_annotations": "true"}
	return map[string]any{"type": "snapshot", "address": a.Lazy.Socket, "exports": exports}
}

// unpacking is the list that is there and ours: one that is named replaces the other.
func (a *Addition) unpacking(there *Settings) []any {
	list, _ := there.at("plugins", transfer)["unpack_config"].([]any)
	if len(list) == 0 {
		list = []any{map[string]any{"platform": a.Platform, "snapshotter": there.Snapshotter()}}
	}
	return append(list[:len(list):len(list)], map[string]any{"platform": a.Platform, "snapshotter": a.Lazy.Snapshotter})
}
