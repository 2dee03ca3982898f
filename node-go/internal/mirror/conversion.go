package mirror

import (
	"bytes"
	"context"
	"os"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"golang.org/x/sync/errgroup"

	"rollbox.dev/node/internal/problem"
	"rollbox.dev/node/internal/wire"
)

// converted makes a converted copy. It reads what is in the private registry, so it keeps its turn while it works and not
// while an upstream registry makes it wait, and it needs no credentials.
func (c *Copier) converted(ctx context.Context, f *flight, target *endpoint, convert Converter) (*wire.Copied, error) {
	if f.request.noRoom {
		return nil, full(c.Registry, "it has no room for more")
	}
	plain, err := c.plain(ctx, f, target)
	if err != nil {
		return nil, err
	}
	f.like(&wire.CopyProgress{Phase: wire.CopyProgress_WAITING})
	if err := c.conversions.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	defer c.conversions.Release(1)
	folder, err := c.workshop(f.request)
	if err != nil {
		return nil, problem.New(problem.Internal, "no room to convert an image: %w", err)
	}
	made, err := c.convertedIn(ctx, folder, f, target, plain, convert)
	if err == nil || problem.From(err).Code == problem.Unsupported {
		// Otherwise the next attempt goes on with what is there.
		_ = os.RemoveAll(folder)
	}
	return made, err
}

// plain has the plain copy made, and returns where it is; an image of the private registry itself needs none.
func (c *Copier) plain(ctx context.Context, f *flight, target *endpoint) (name.Digest, error) {
	if f.request.isPrivate() {
		own := f.request.through.Digest(f.request.source.DigestStr())
		if _, err := target.puller.Head(ctx, own); err != nil {
			return own, fromUpstream(err, c.Registry)
		}
		return own, nil
	}
	made, err := c.joined(ctx, f.request.plain(), func(now *wire.CopyProgress) error { f.like(now); return nil })
	return f.request.through.Digest(made.GetDigest()), err
}

func (c *Copier) convertedIn(
	ctx context.Context, folder string, f *flight, target *endpoint, plain name.Digest, convert Converter,
) (*wire.Copied, error) {
	own := f.request
	own.source = plain
	manifests, err := target.manifests(ctx, own)
	if err != nil {
		return nil, fromRegistry(err, c.Registry)
	}
	f.like(&wire.CopyProgress{Phase: wire.CopyProgress_CONVERTING, TotalLayers: uint32(layersOf(manifests))})
	return c.convertAll(ctx, f, own, manifests, target, func(ctx context.Context, image v1.Image) (v1.Image, error) {
		return convert(ctx, image, folder, f.request.first,
			func() { f.change(func(p *progress) { p.doneLayers++ }) },
			func(bytes int64) { f.change(func(p *progress) { p.doneBytes += bytes }) })
	})
}

// convertAll makes the converted copy whole: until its marker is there, nothing of it is offered.
func (c *Copier) convertAll(
	ctx context.Context, f *flight, own request, manifests []manifest, target *endpoint,
	convert func(context.Context, v1.Image) (v1.Image, error),
) (*wire.Copied, error) {
	common, err := target.common(ctx, f.request)
	if err != nil {
		return nil, fromRegistry(err, c.Registry)
	}
	var images []v1.Image
	var done []manifest
	var sent int64
	for _, one := range manifests {
		image, err := target.image(ctx, own, one)
		if err != nil {
			return nil, fromRegistry(err, c.Registry)
		}
		made, err := convert(ctx, image)
		if err != nil {
			return nil, fromConversion(err, c.Registry)
		}
		if made, err = f.request.owned(made, common); err != nil {
			return nil, err
		}
		// Before the next one is converted: what was sent of a conversion that breaks off is not sent again.
		if err := c.sendImage(ctx, f.request, made, target); err != nil {
			return nil, fromRegistry(err, c.Registry)
		}
		converted, err := described(made, one.platform)
		if err != nil {
			return nil, err
		}
		sent += converted.size()
		images, done = append(images, made), append(done, converted)
	}
	final, err := c.sendConverted(ctx, f.request, images, done, target)
	if err != nil {
		return nil, fromRegistry(err, c.Registry)
	}
	return &wire.Copied{Digest: final.digest.String(), SentBytes: uint64(sent), SizeBytes: uint64(sent)}, nil
}

func (c *Copier) sendConverted(
	ctx context.Context, wish request, images []v1.Image, manifests []manifest, target *endpoint,
) (final manifest, err error) {
	_, err = c.again(ctx, target, func(target *endpoint) error {
		for _, one := range images {
			if err := c.sendImage(ctx, wish, one, target); err != nil {
				return err
			}
		}
		final, err = c.sendManifests(ctx, wish, manifests, target)
		return err
	})
	return final, err
}

func (c *Copier) sendImage(ctx context.Context, wish request, image v1.Image, target *endpoint) error {
	layers, err := image.Layers()
	if err != nil {
		return err
	}
	config, err := partial.ConfigLayer(image)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(c.LayersAtOnce)
	for _, layer := range append(layers, config) {
		group.Go(func() error { return target.pusher.Upload(ctx, wish.target, layer) })
	}
	return group.Wait()
}

func described(image v1.Image, platform *v1.Platform) (manifest, error) {
	raw, err := image.RawManifest()
	if err != nil {
		return manifest{}, err
	}
	kind, err := image.MediaType()
	if err != nil {
		return manifest{}, err
	}
	return read(raw, kind, platform)
}

// layersOf counts layers; the configuration is the other part of a manifest.
func layersOf(manifests []manifest) (total int) {
	for _, one := range manifests {
		total += len(one.parts) - 1
	}
	return total
}

// withArchitectures adds those that a converted copy has: on each a sandbox is started before it is offered.
func (c *Copier) withArchitectures(ctx context.Context, f *flight, target *endpoint, copied *wire.Copied) (*wire.Copied, error) {
	if f.request.form != wire.ImageForm_ESTARGZ {
		return copied, nil
	}
	found, err := architecturesOf(ctx, target, f.request.target.Digest(copied.GetDigest()))
	if err != nil {
		return nil, fromRegistry(err, c.Registry)
	}
	copied.Architectures = found
	return copied, nil
}

func architecturesOf(ctx context.Context, target *endpoint, copied name.Digest) ([]string, error) {
	about, err := target.puller.Get(ctx, copied)
	if err != nil {
		return nil, err
	}
	if about.MediaType.IsIndex() {
		index, err := v1.ParseIndexManifest(bytes.NewReader(about.Manifest))
		if err != nil {
			return nil, err
		}
		var found []string
		for _, one := range index.Manifests {
			if one.Platform != nil {
				found = append(found, one.Platform.Architecture)
			}
		}
		return found, nil
	}
	image, err := about.Image()
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	return []string{config.Architecture}, nil
}
