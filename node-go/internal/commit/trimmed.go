package commit

import (
	"bytes"
	"encoding/json"
	"errors"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// trimmed is an image without its top layer.
type trimmed struct {
	of       v1.Image
	manifest *v1.Manifest
	config   []byte
}

// tops are the layers of an image that a commit takes into its own: the topmost, and one with nothing but folders for it.
type tops struct{ layer, folders v1.Layer }

// withoutTops returns an image without these layers.
func withoutTops(of v1.Image) (v1.Image, tops, error) {
	layers, err := of.Layers()
	if err != nil {
		return nil, tops{}, err
	}
	manifest, err := of.Manifest()
	if err != nil {
		return nil, tops{}, err
	}
	file, err := of.ConfigFile()
	if err != nil {
		return nil, tops{}, err
	}
	if len(layers) == 0 || len(manifest.Layers) != len(layers) || len(file.RootFS.DiffIDs) != len(layers) {
		return nil, tops{}, errors.New("its manifest and its configuration have other layers")
	}
	manifest, file = manifest.DeepCopy(), file.DeepCopy()
	found := tops{layer: layers[len(layers)-1]}
	dropped(file)
	left := len(layers) - 1
	if last := lastLayer(file); left > 0 && last >= 0 && file.History[last].CreatedBy == createdFolders {
		left--
		found.folders = layers[left]
		dropped(file)
	}
	manifest.Layers = manifest.Layers[:left]
	file.RootFS.DiffIDs = file.RootFS.DiffIDs[:left]
	config, err := json.Marshal(file)
	if err != nil {
		return nil, tops{}, err
	}
	if manifest.Config.Digest, manifest.Config.Size, err = v1.SHA256(bytes.NewReader(config)); err != nil {
		return nil, tops{}, err
	}
	made, err := partial.CompressedToImage(&trimmed{of, manifest, config})
	return made, found, err
}

// lastLayer returns where the history tells of the topmost layer; below 0: it does not.
func lastLayer(file *v1.ConfigFile) int {
	at := len(file.History) - 1
	for at >= 0 && file.History[at].EmptyLayer {
		at--
	}
	return at
}

func dropped(file *v1.ConfigFile) {
	if at := lastLayer(file); at >= 0 {
		file.History = append(file.History[:at], file.History[at+1:]...)
	}
}

func (t *trimmed) RawConfigFile() ([]byte, error) { return t.config, nil }

func (t *trimmed) MediaType() (types.MediaType, error) { return t.of.MediaType() }

func (t *trimmed) RawManifest() ([]byte, error) { return json.Marshal(t.manifest) }

func (t *trimmed) LayerByDigest(digest v1.Hash) (partial.CompressedLayer, error) {
	return t.of.LayerByDigest(digest)
}
