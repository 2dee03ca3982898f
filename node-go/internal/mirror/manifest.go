package mirror

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"rollbox.dev/node/internal/problem"
)

const (
	// Overlay file systems take no more.
	maxLayers = 127
	maxConfig = 4 << 20
)

// also are the architectures that a processor can run besides its own.
var also = map[string]string{"amd64": "386", "arm64": "arm"}

// manifest is what the registry is given: its bytes, and the content that it names.
type manifest struct {
	raw       []byte
	mediaType types.MediaType
	digest    v1.Hash
	parts     []v1.Descriptor // configuration and layers
	platform  *v1.Platform    // as an index says
}

// RawManifest and MediaType make it something that can be put into a registry.
func (m manifest) RawManifest() ([]byte, error)        { return m.raw, nil }
func (m manifest) MediaType() (types.MediaType, error) { return m.mediaType, nil }

func (m manifest) size() (total int64) {
	for _, part := range m.parts {
		total += part.Size
	}
	return total
}

// read checks the manifest of one platform: what is certain not to run is refused before its layers are read.
func read(raw []byte, mediaType types.MediaType, platform *v1.Platform) (manifest, error) {
	parsed, err := v1.ParseManifest(bytes.NewReader(raw))
	if err != nil {
		return manifest{}, refusal("its manifest cannot be read: %w", err)
	}
	switch {
	case mediaType.IsSchema1() || parsed.SchemaVersion == 1:
		return manifest{}, refusal("its manifest has schema 1, which no container runtime takes any more: push it anew")
	case len(parsed.Layers) < 1 || len(parsed.Layers) > maxLayers:
		return manifest{}, refusal("it has %d layers; a container needs 1 to %d", len(parsed.Layers), maxLayers)
	case parsed.Config.MediaType != types.OCIConfigJSON && parsed.Config.MediaType != types.DockerConfigJSON:
		return manifest{}, refusal("it is no container image but %.100q", parsed.Config.MediaType)
	case parsed.Config.Size > maxConfig:
		return manifest{}, refusal("its configuration has more than %d bytes", maxConfig)
	}
	digest, _, err := v1.SHA256(bytes.NewReader(raw))
	if err != nil {
		return manifest{}, err
	}
	parts := append([]v1.Descriptor{parsed.Config}, parsed.Layers...)
	for _, part := range parts {
		if !part.MediaType.IsDistributable() || strings.Contains(string(part.MediaType), "foreign") {
			return manifest{}, refusal("it has a layer that its registry does not hold (%.100s)", part.MediaType)
		}
		if part.Size < 0 || part.Digest.Hex == "" {
			return manifest{}, refusal("it names content without digest or size")
		}
	}
	return manifest{raw: raw, mediaType: kindOf(mediaType, parsed), digest: digest, parts: parts, platform: platform}, nil
}

func kindOf(told types.MediaType, parsed *v1.Manifest) types.MediaType {
	if told.IsImage() {
		return told
	}
	if parsed.MediaType.IsImage() {
		return parsed.MediaType
	}
	return types.OCIManifestSchema1
}

// choose returns the entries of an index that nodes of these architectures run, one for each.
func choose(raw []byte, architectures []string) ([]v1.Descriptor, error) {
	index, err := v1.ParseIndexManifest(bytes.NewReader(raw))
	if err != nil {
		return nil, refusal("its index cannot be read: %w", err)
	}
	first := map[string]v1.Descriptor{}
	for _, entry := range index.Manifests {
		if entry.Platform == nil || entry.Platform.OS != "linux" {
			continue
		}
		if _, there := first[entry.Platform.Architecture]; !there {
			first[entry.Platform.Architecture] = entry
		}
	}
	var chosen []v1.Descriptor
	for _, architecture := range architectures {
		entry, there := first[architecture]
		if !there {
			entry, there = first[also[architecture]]
		}
		if there && !slices.ContainsFunc(chosen, func(one v1.Descriptor) bool { return one.Digest == entry.Digest }) {
			chosen = append(chosen, entry)
		}
	}
	if len(chosen) == 0 {
		return nil, refusal("it has nothing for Linux on %s", strings.Join(architectures, ", "))
	}
	for _, entry := range chosen {
		if entry.MediaType.IsIndex() {
			return nil, refusal("its index names an index for %s", entry.Platform.Architecture)
		}
	}
	return chosen, nil
}

// indexOf makes an index of what was copied: the source's own names images that are not here, which registries refuse.
func indexOf(manifests []manifest, annotations map[string]string) (manifest, error) {
	index := v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex, Annotations: annotations}
	for _, one := range manifests {
		index.Manifests = append(index.Manifests, v1.Descriptor{
			MediaType: one.mediaType, Digest: one.digest, Size: int64(len(one.raw)), Platform: one.platform,
		})
	}
	raw, err := json.Marshal(index)
	if err != nil {
		return manifest{}, err
	}
	digest, _, err := v1.SHA256(bytes.NewReader(raw))
	return manifest{raw: raw, mediaType: types.OCIImageIndex, digest: digest}, err
}

func refusal(format string, values ...any) *problem.Problem {
	return problem.New(problem.Unsupported, "the image cannot run here: %w", fmt.Errorf(format, values...)).With("option", "image")
}
