package images

import (
	"context"
	"strings"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"rollbox.dev/node/internal/containerd"
)

// Broken returns the digests of the images that have one of these layers, each with what is said of the layer. Cost: a
// call, and two or four for each image.
func (s *Store) Broken(ctx context.Context, layers map[string]string) (map[string]string, error) {
	there, err := s.runtime.Images.ListImages(ctx, &cri.ListImagesRequest{})
	if err != nil {
		return nil, containerd.Failed("list images", err)
	}
	found := map[string]string{}
	for _, one := range there.GetImages() {
		for _, name := range one.GetRepoDigests() {
			_, digest, _ := strings.Cut(name, "@")
			parts, err := partsOf(ctx, s.runtime.Content, digest)
			if err != nil {
				// Nothing lazily mounted is without its manifest.
				continue
			}
			for _, part := range parts {
				if why, is := layers[part.Digest]; is {
					found[digest] = why
				}
			}
		}
	}
	return found, nil
}
