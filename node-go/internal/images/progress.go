package images

import (
	"context"
	"errors"
	"strings"

	content "github.com/containerd/containerd/api/services/content/v1"
)

// Progress is how far a pull has come.
//
// Total is negative while it is not known. Where layers are read lazily, Done stays behind Total.
type Progress struct {
	Pulling bool
	Done    int64
	Total   int64
}

// meter counts the bytes of one image that are in containerd's store of content. An image whose name has no digest is
// not counted: nothing says which of the node's downloads are its own.
type meter struct {
	store  content.ContentClient
	digest string
	parts  []blob
	whole  map[string]bool
}

func newMeter(store content.ContentClient, image string) *meter {
	_, digest, _ := strings.Cut(image, "@")
	return &meter{store: store, digest: digest, whole: map[string]bool{}}
}

// count returns bytes that are here and bytes in all; the second is negative when they are not known. Cost: two calls to
// containerd, and one more for each part that was not whole before.
func (m *meter) count(ctx context.Context) (int64, int64) {
	if m.digest == "" {
		return 0, -1
	}
	if m.parts == nil {
		parts, err := partsOf(ctx, m.store, m.digest)
		if err != nil {
			if !errors.Is(err, errNotHere) {
				// It will not get better; the pull itself says what is wrong with the image.
				m.digest = ""
			}
			return 0, -1
		}
		m.parts = parts
	}
	arriving := m.arriving(ctx)
	var done, total int64
	for _, one := range m.parts {
		total += one.Size
		if offset, there := arriving[one.Digest]; there {
			done += min(offset, one.Size)
		} else if m.isWhole(ctx, one.Digest) {
			done += one.Size
		}
	}
	return done, total
}

func (m *meter) isWhole(ctx context.Context, digest string) bool {
	if !m.whole[digest] {
		_, err := m.store.Info(ctx, &content.InfoRequest{Digest: digest})
		m.whole[digest] = err == nil
	}
	return m.whole[digest]
}

// arriving returns how many bytes have come of what is being downloaded now, by digest.
func (m *meter) arriving(ctx context.Context) map[string]int64 {
	found := map[string]int64{}
	statuses, err := m.store.ListStatuses(ctx, &content.ListStatusesRequest{})
	if err != nil {
		return found
	}
	for _, one := range statuses.GetStatuses() {
		// Named as layer-sha256:...; what is not named so is nothing of a pull.
		if _, digest, ok := strings.Cut(one.GetRef(), "-"); ok {
			found[digest] = one.GetOffset()
		}
	}
	return found
}
