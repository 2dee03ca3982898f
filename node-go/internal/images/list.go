// Package images knows what images a node has, brings further ones and removes them.
package images

import (
	"context"
	"slices"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"rollbox.dev/node/internal/containerd"
	"rollbox.dev/node/internal/problem"
	"rollbox.dev/node/internal/wire"
)

// Store is the images of one node.
type Store struct {
	runtime *containerd.Runtime
	use     *Use
	brought *PullMarks
	lazy    *laziness
	layers  *layering
	history *history
}

// NewStore returns the images of a containerd; sandboxes start from them by some runtime handlers.
func NewStore(runtime *containerd.Runtime, handlers []string, use *Use, brought *PullMarks) *Store {
	return &Store{
		runtime: runtime, use: use, brought: brought,
		lazy: newLaziness(runtime, handlers), layers: newLayering(runtime.Content), history: newHistory(),
	}
}

// Tell returns all images; to a caller that knows this version of the list only that, and to one that takes changes
// (`changes`) those since the version that it knows, as long as that is remembered. Cost: see List.
func (s *Store) Tell(ctx context.Context, known string, layers, changes bool) (*wire.ImageList, error) {
	found, err := s.List(ctx, layers)
	if err != nil {
		return nil, err
	}
	marks := map[uint64]bool{}
	for _, one := range found {
		one.Mark = markOf(one)
		marks[one.Mark] = true
	}
	told := &wire.ImageList{Version: versionOf(marks), Images: found}
	if changes {
		// Whatever the caller knows: the next one may know what is told now.
		if came, gone, remembered := s.history.since(known, told.Version, marks); remembered {
			isOld := func(one *wire.Image) bool { return !came[one.GetMark()] }
			told.Images, told.Gone, told.Changes = slices.DeleteFunc(found, isOld), gone, true
		}
	}
	if told.Version == known {
		return &wire.ImageList{Version: known, Unchanged: true}, nil
	}
	return told, nil
}

// List returns all images, with their layers where these are asked for. Cost: three calls and three for each handler; and
// for each new image one more where there is one that is lazy, and two to four for its layers.
func (s *Store) List(ctx context.Context, layers bool) ([]*wire.Image, error) {
	there, err := s.runtime.Images.ListImages(ctx, &cri.ListImagesRequest{})
	if err != nil {
		return nil, containerd.Failed("list images", err)
	}
	found, err := s.withUse(ctx, there.GetImages())
	if err != nil || !layers {
		return found, err
	}
	for i, one := range there.GetImages() {
		found[i].Layers = s.layers.of(ctx, one)
	}
	return found, nil
}

func (s *Store) withUse(ctx context.Context, there []*cri.Image) ([]*wire.Image, error) {
	used, err := s.containers(ctx)
	if err != nil {
		return nil, err
	}
	lazy, err := s.lazy.of(ctx, there)
	if err != nil {
		return nil, err
	}
	marked, err := s.brought.all(ctx)
	if err != nil {
		return nil, err
	}
	found := make([]*wire.Image, 0, len(there))
	for _, one := range there {
		found = append(found, s.told(one, used.of(one), lazy, when(marked, one)))
	}
	return found, nil
}

func (s *Store) told(one *cri.Image, used use, lazy map[string]bool, brought int64) *wire.Image {
	told := &wire.Image{
		Names:      one.GetRepoTags(),
		Digests:    one.GetRepoDigests(),
		Id:         one.GetId(),
		SizeBytes:  one.GetSize(),
		Pinned:     one.GetPinned(),
		Containers: used.containers,
	}
	if last := max(used.lastMs, s.use.last(one)); last > 0 {
		told.LastUsedMs = &last
	}
	if brought > 0 {
		told.BroughtMs = &brought
	}
	is := lazy[one.GetId()]
	told.Lazy = &is
	return told
}

// Remove removes an image with all its names; false: there was none. With `brought` only one that rollbox has brought.
func (s *Store) Remove(ctx context.Context, name string, brought bool) (bool, error) {
	image := &cri.ImageSpec{Image: name}
	found, err := s.runtime.Images.ImageStatus(ctx, &cri.ImageStatusRequest{Image: image})
	if err != nil {
		return false, containerd.Failed("look for "+name, err)
	}
	one := found.GetImage()
	if one == nil {
		return false, nil
	}
	if one.GetPinned() {
		return false, problem.New(problem.Conflict, "%s is pinned: the node's runtime needs it", name).With("image", name)
	}
	used, err := s.containers(ctx)
	if err != nil {
		return false, err
	}
	if brought {
		marked, err := s.brought.all(ctx)
		if err != nil {
			return false, err
		}
		if when(marked, one) == 0 {
			return false, problem.New(problem.Conflict, "%s was brought to the node by somebody else", name).With("image", name)
		}
	}
	if count := used.of(one).containers; count > 0 {
		return false, problem.New(problem.Conflict, "%s is used by %d containers", name, count).With("image", name)
	}
	if _, err := s.runtime.Images.RemoveImage(ctx, &cri.RemoveImageRequest{Image: image}); err != nil {
		return false, containerd.Failed("remove "+name, err)
	}
	return true, nil
}

// use is how many containers there are of an image, and when the youngest of them was made (Unix time).
type use struct {
	containers uint32
	lastMs     int64
}

// users is use by id or name of an image.
type users map[string]use

func (s *Store) containers(ctx context.Context) (users, error) {
	listed, err := s.runtime.Containers.ListContainers(ctx, &cri.ListContainersRequest{})
	if err != nil {
		return nil, containerd.Failed("list containers", err)
	}
	found := users{}
	for _, one := range listed.GetContainers() {
		// Older versions name the image only as the kubelet did.
		names := map[string]bool{one.GetImageId(): true, one.GetImageRef(): true, one.GetImage().GetImage(): true}
		delete(names, "")
		for name := range names {
			before := found[name]
			found[name] = use{before.containers + 1, max(before.lastMs, one.GetCreatedAt()/1_000_000)}
		}
	}
	return found, nil
}

// of finds an image by its id, or else by the name that most containers have.
func (u users) of(one *cri.Image) use {
	found := u[one.GetId()]
	for _, name := range names(one) {
		if other := u[name]; other.containers > found.containers {
			found = other
		}
	}
	return found
}

func names(one *cri.Image) []string {
	return append(append([]string{one.GetId()}, one.GetRepoTags()...), one.GetRepoDigests()...)
}
