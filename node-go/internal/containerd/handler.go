package containerd

import (
	"context"
	"encoding/json"
	"path"
	"strings"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"rollbox.dev/node/internal/problem"
)

// Containerd names the folder of a snapshotter by its plugin.
const snapshotterFolder = "io.containerd.snapshotter.v1."

// Snapshotter returns the snapshotter that holds the images of a runtime handler: its own one, or that of all images.
func (r *Runtime) Snapshotter(ctx context.Context, handler string) (string, error) {
	status, err := r.Containers.Status(ctx, &cri.StatusRequest{Verbose: true})
	if err != nil {
		return "", Failed("ask for the runtime's settings", err)
	}
	own, err := ofHandler(status.GetInfo()["config"], handler)
	if err != nil || own != "" {
		return own, err
	}
	disks, err := r.Images.ImageFsInfo(ctx, &cri.ImageFsInfoRequest{})
	if err != nil {
		return "", Failed("ask for the images' file system", err)
	}
	return ofAll(disks.GetImageFilesystems()), nil
}

// ofHandler reads containerd's settings, as it tells them; empty: the handler has no snapshotter of its own.
func ofHandler(config, handler string) (string, error) {
	var read struct {
		Containerd struct {
			Runtimes map[string]struct {
				Snapshotter string `json:"snapshotter"`
			} `json:"runtimes"`
		} `json:"containerd"`
	}
	if err := json.Unmarshal([]byte(config), &read); err != nil {
		return "", problem.New(problem.Unsupported, "the runtime does not tell its settings as containerd does: %w", err)
	}
	found, there := read.Containerd.Runtimes[handler]
	if !there {
		return "", problem.New(problem.IsolationMissing, "containerd has no runtime handler %q", handler)
	}
	return found.Snapshotter, nil
}

// ofAll: the first file system is that of the default snapshotter, for the kubelet's sake.
func ofAll(disks []*cri.FilesystemUsage) string {
	if len(disks) == 0 {
		return ""
	}
	return strings.TrimPrefix(path.Base(disks[0].GetFsId().GetMountpoint()), snapshotterFolder)
}
