package images

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"

	content "github.com/containerd/containerd/api/services/content/v1"
)

// A manifest or an index beyond this is not read: it is the registry's, and its owner's.
const maxManifestBytes = 4 << 20

// blob is one part of an image, as its manifest names it.
type blob struct {
	Digest   string `json:"digest"`
	Size     int64  `json:"size"`
	Platform *struct {
		OS           string `json:"os"`
		Architecture string `json:"architecture"`
	} `json:"platform"`
}

// manifest is the part of a manifest, or of an index of manifests, that says what it consists of.
type manifest struct {
	Config    blob   `json:"config"`
	Layers    []blob `json:"layers"`
	Manifests []blob `json:"manifests"`
}

var errNotHere = errors.New("its manifest is not here yet")

// partsOf returns what an image for this machine consists of, from what is in containerd's store of content.
func partsOf(ctx context.Context, store content.ContentClient, digest string) ([]blob, error) {
	found, err := manifestOf(ctx, store, digest)
	if err != nil {
		return nil, err
	}
	return distinct(append(found.Layers, found.Config)), nil
}

// layersIn returns the layers of an image for this machine, as partsOf.
func layersIn(ctx context.Context, store content.ContentClient, digest string) ([]blob, error) {
	found, err := manifestOf(ctx, store, digest)
	if err != nil {
		return nil, err
	}
	return distinct(found.Layers), nil
}

// manifestOf reads the manifest of an image for this machine.
func manifestOf(ctx context.Context, store content.ContentClient, digest string) (*manifest, error) {
	// An index names manifests; one more step would be an index of indexes.
	for range 2 {
		text, err := read(ctx, store, digest)
		if err != nil {
			return nil, err
		}
		var found manifest
		if err := json.Unmarshal(text, &found); err != nil {
			return nil, fmt.Errorf("%s: %w", digest, err)
		}
		if len(found.Manifests) == 0 {
			return &found, nil
		}
		if digest, err = found.forThisMachine(); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("%s is an index in an index", digest)
}

func (m *manifest) forThisMachine() (string, error) {
	for _, one := range m.Manifests {
		if p := one.Platform; p == nil || p.OS == "linux" && p.Architecture == runtime.GOARCH {
			return one.Digest, nil
		}
	}
	return "", errors.New("none of its manifests is for this machine")
}

// distinct leaves out what is there twice, as empty layers are: it is fetched once.
func distinct(parts []blob) []blob {
	seen := map[string]bool{"": true}
	kept := parts[:0]
	for _, one := range parts {
		if !seen[one.Digest] && one.Size >= 0 {
			seen[one.Digest] = true
			kept = append(kept, one)
		}
	}
	return kept
}

func read(ctx context.Context, store content.ContentClient, digest string) ([]byte, error) {
	about, err := store.Info(ctx, &content.InfoRequest{Digest: digest})
	if err != nil {
		return nil, errNotHere
	}
	if size := about.GetInfo().GetSize(); size > maxManifestBytes {
		return nil, fmt.Errorf("%s has %d bytes, more than a manifest may have", digest, size)
	}
	stream, err := store.Read(ctx, &content.ReadContentRequest{Digest: digest})
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	for {
		part, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return text.Bytes(), nil
		}
		if err != nil {
			return nil, err
		}
		if text.Len()+len(part.GetData()) > maxManifestBytes {
			return nil, fmt.Errorf("%s is longer than it was said to be", digest)
		}
		text.Write(part.GetData())
	}
}
