package convert

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// SourceAnnotation of a converted image's manifest holds the digest of the image that it was made of.
const SourceAnnotation = "dev.rollbox.converted-from"

// Options of a conversion.
type Options struct {
	// Folder keeps layers that are finished, for as long as they are needed: the result reads them, and a conversion that
	// was interrupted goes on with them. Besides, it takes the decompressed size of the largest layer. The library that
	// writes layers takes as much as the finished layer in the folder for temporary files (TMPDIR).
	Folder string
	// First are the paths of files that are read first, in this order, each in the layer that it is read from; those that
	// the image does not have are left out, and those in folders of which that layer has no entry stay where they are. None:
	// what comes first in the layers of an image that was built in this form stays first.
	First []string
	// Limits that hold; the zero value stands for DefaultLimits.
	Limits Limits
	// Done is called after each layer; nil: nobody is told.
	Done func()
	// Worked is told how many bytes were worked through since it was called last, some of them several times, and those of
	// the result that are read: as long as a conversion goes on it is called. Nil: nobody is told. Parts call it at once.
	Worked func(bytes int64)
}

// Image converts an image of one platform. The same image and options give the same digest.
//
// The result has the configuration of the source, and its layers one to one: nothing is merged or left out, so what a
// user named and what runs are the same files. Each layer was read back and compared. What is returned reads its layers
// from the folder: push it before that is removed.
//
// Errors: *RefusedError when this image can not be converted; others may pass when it is tried again.
func Image(ctx context.Context, source v1.Image, options Options) (v1.Image, error) {
	if options.Limits == (Limits{}) {
		options.Limits = DefaultLimits
	}
	config, parts, err := readable(source, options.Limits)
	if err != nil {
		return nil, err
	}
	if options.Worked == nil {
		options.Worked = func(int64) {}
	}
	if err := tidy(options.Folder); err != nil {
		return nil, err
	}
	work := &layers{
		folder: options.Folder, first: options.First, listed: len(options.First) > 0, limits: options.Limits,
		left: options.Limits.ImageBytes, worked: options.Worked,
	}
	done := make([]*written, len(parts))
	// Upper layers hide files of lower ones.
	for i, part := range slices.Backward(parts) {
		if done[i], err = work.convert(ctx, part, config.RootFS.DiffIDs[i]); err != nil {
			return nil, err
		}
		if options.Done != nil {
			options.Done()
		}
	}
	return assemble(source, config, done)
}

// tidy removes what a conversion that was killed has left of the layer at which it was.
func tidy(folder string) error {
	left, err := filepath.Glob(filepath.Join(folder, plainPrefix+"*"))
	for _, one := range left {
		err = errors.Join(err, os.Remove(one))
	}
	return err
}

// readable: what can be told before a layer is read.
func readable(source v1.Image, limits Limits) (*v1.ConfigFile, []v1.Layer, error) {
	config, err := source.ConfigFile()
	if err != nil {
		return nil, nil, err
	}
	parts, err := source.Layers()
	if err != nil {
		return nil, nil, err
	}
	switch {
	case len(parts) == 0:
		return nil, nil, refused("the image has no layers")
	case len(parts) > limits.Layers:
		return nil, nil, refused("the image has %d layers, more than %d", len(parts), limits.Layers)
	case len(parts) != len(config.RootFS.DiffIDs):
		return nil, nil, refused("the image has %d layers, its configuration %d", len(parts), len(config.RootFS.DiffIDs))
	}
	for _, part := range parts {
		kind, err := part.MediaType()
		if err != nil {
			return nil, nil, err
		}
		if !kind.IsDistributable() {
			return nil, nil, refused("the image has a layer that its registry does not hold (%s)", kind)
		}
		if !kind.IsLayer() && kind != types.DockerUncompressedLayer {
			return nil, nil, refused("the image has a layer of type %s", kind)
		}
	}
	return config, parts, nil
}

func assemble(source v1.Image, config *v1.ConfigFile, done []*written) (v1.Image, error) {
	digest, err := source.Digest()
	if err != nil {
		return nil, err
	}
	history := config.History
	config = config.DeepCopy()
	config.RootFS, config.History = v1.RootFS{Type: "layers"}, nil
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err = mutate.ConfigFile(image, config)
	if err != nil {
		return nil, err
	}
	for _, one := range done {
		add := mutate.Addendum{Layer: one.layer(), Annotations: one.annotations(), MediaType: types.OCILayer}
		if image, err = mutate.Append(image, add); err != nil {
			return nil, err
		}
	}
	config, err = image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.History = history
	if image, err = mutate.ConfigFile(image, config); err != nil {
		return nil, err
	}
	annotated, ok := mutate.Annotations(image, map[string]string{SourceAnnotation: digest.String()}).(v1.Image)
	if !ok {
		return nil, errors.New("annotations made something else of the image")
	}
	if _, err := annotated.Manifest(); err != nil {
		return nil, fmt.Errorf("the manifest: %w", err)
	}
	return annotated, nil
}
