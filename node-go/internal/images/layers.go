package images

import (
	"context"
	"strings"
	"sync"

	content "github.com/containerd/containerd/api/services/content/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"rollbox.dev/node/internal/wire"
)

// layering knows the layers of the images of a node: it reads the manifest of each once.
type layering struct {
	content content.ContentClient
	mutex   sync.Mutex
	known   map[string][]*wire.Layer
}

func newLayering(content content.ContentClient) *layering {
	return &layering{content: content, known: map[string][]*wire.Layer{}}
}

// of returns the layers of an image; none if its manifest is not here, as of one that was loaded from a file. Cost: for an
// image that is new, two calls for its manifest, and two for an index.
func (l *layering) of(ctx context.Context, one *cri.Image) []*wire.Layer {
	digest := digestOf(one)
	if digest == "" {
		return nil
	}
	l.mutex.Lock()
	found, there := l.known[digest]
	l.mutex.Unlock()
	if there {
		return found
	}
	parts, err := layersIn(ctx, l.content, digest)
	if err != nil {
		// Looked for again: it may be on its way.
		return nil
	}
	layers := make([]*wire.Layer, 0, len(parts))
	for _, part := range parts {
		layers = append(layers, &wire.Layer{Digest: part.Digest, SizeBytes: uint64(part.Size)})
	}
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if len(l.known) >= maxRemembered {
		clear(l.known)
	}
	l.known[digest] = layers
	return layers
}

func digestOf(one *cri.Image) string {
	for _, name := range one.GetRepoDigests() {
		if _, digest, found := strings.Cut(name, "@"); found {
			return digest
		}
	}
	return ""
}
