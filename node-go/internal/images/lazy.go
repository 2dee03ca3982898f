package images

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"sync"
	"time"

	snapshots "github.com/containerd/containerd/api/services/snapshots/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"rollbox.dev/node/internal/containerd"
	"rollbox.dev/node/internal/problem"
)

// Snapshotters that fetch content as it is read put this label on the snapshots of such layers.
const remoteLabel = `labels."containerd.io/snapshot/remote"`

// A node that has had more images than this forgets what their layers were.
const maxRemembered = 100_000

// What a snapshotter has told last holds where it does not answer within this: a lazy snapshotter that hangs must not keep
// the node's other images from being told.
const remoteWithin = 5 * time.Second

// laziness tells which images have layers whose content is fetched as it is read.
type laziness struct {
	runtime  *containerd.Runtime
	handlers []string
	within   time.Duration
	mutex    sync.Mutex
	chains   map[string][]string
	// By snapshotter, what it has told last.
	told map[string][]string
}

func newLaziness(runtime *containerd.Runtime, handlers []string) *laziness {
	return &laziness{runtime: runtime, handlers: handlers, within: remoteWithin, chains: map[string][]string{}, told: map[string][]string{}}
}

// of returns the images that are lazy, by their ids.
func (l *laziness) of(ctx context.Context, images []*cri.Image) (map[string]bool, error) {
	remote, err := l.remote(ctx)
	if err != nil {
		return nil, err
	}
	found := map[string]bool{}
	if len(remote) == 0 {
		return found, nil
	}
	for _, one := range images {
		chain, err := l.chain(ctx, one.GetId())
		if err != nil {
			return nil, err
		}
		for _, name := range chain {
			if remote[name] {
				found[one.GetId()] = true
				break
			}
		}
	}
	return found, nil
}

// remote returns the names of the snapshots whose content is fetched as it is read.
func (l *laziness) remote(ctx context.Context) (map[string]bool, error) {
	asked, found := map[string]bool{}, map[string]bool{}
	for _, handler := range l.handlers {
		snapshotter, err := l.runtime.Snapshotter(ctx, handler)
		if err != nil && problem.From(err).Code == problem.IsolationMissing {
			// Not every node for sandboxes need be one for lazy pulling.
			continue
		}
		if err == nil && !asked[snapshotter] {
			asked[snapshotter] = true
			var names []string
			names, err = l.remoteOf(ctx, snapshotter)
			for _, name := range names {
				found[name] = true
			}
		}
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

func (l *laziness) remoteOf(ctx context.Context, snapshotter string) ([]string, error) {
	limited, cancel := context.WithTimeout(ctx, l.within)
	defer cancel()
	names, err := l.listRemote(limited, snapshotter)
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if err == nil {
		l.told[snapshotter] = names
		return names, nil
	}
	if limited.Err() != nil && ctx.Err() == nil {
		return l.told[snapshotter], nil
	}
	return nil, containerd.Failed("list snapshots", err)
}

func (l *laziness) listRemote(ctx context.Context, snapshotter string) ([]string, error) {
	request := &snapshots.ListSnapshotsRequest{Snapshotter: snapshotter, Filters: []string{remoteLabel}}
	stream, err := l.runtime.Snapshots.List(ctx, request)
	if err != nil {
		return nil, err
	}
	var names []string
	for {
		part, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return names, nil
		}
		if err != nil {
			return nil, err
		}
		for _, one := range part.GetInfo() {
			names = append(names, one.GetName())
		}
	}
}

// chain returns the names of the snapshots of an image's layers. An image that is gone meanwhile has none.
func (l *laziness) chain(ctx context.Context, id string) ([]string, error) {
	l.mutex.Lock()
	known, there := l.chains[id]
	l.mutex.Unlock()
	if there {
		return known, nil
	}
	request := &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: id}, Verbose: true}
	status, err := l.runtime.Images.ImageStatus(ctx, request)
	if err != nil {
		return nil, containerd.Failed("look at "+id, err)
	}
	if status.GetImage() == nil {
		return nil, nil
	}
	chain := chainOf(layersOf(status.GetInfo()["info"]))
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if len(l.chains) >= maxRemembered {
		clear(l.chains)
	}
	l.chains[id] = chain
	return chain, nil
}

// layersOf reads the digests of an image's uncompressed layers; none when containerd tells them differently.
func layersOf(info string) []string {
	var read struct {
		Spec struct {
			RootFS struct {
				Layers []string `json:"diff_ids"`
			} `json:"rootfs"`
		} `json:"imageSpec"`
	}
	if json.Unmarshal([]byte(info), &read) != nil {
		return nil
	}
	return read.Spec.RootFS.Layers
}

// chainOf returns the chain ids of layers, by the OCI image specification.
func chainOf(layers []string) []string {
	chain := make([]string, 0, len(layers))
	for i, layer := range layers {
		if i > 0 {
			sum := sha256.Sum256([]byte(chain[i-1] + " " + layer))
			layer = "sha256:" + hex.EncodeToString(sum[:])
		}
		chain = append(chain, layer)
	}
	return chain
}
