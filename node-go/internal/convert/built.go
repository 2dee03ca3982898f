package convert

import (
	"archive/tar"

	"github.com/containerd/stargz-snapshotter/estargz"
)

// Of a layer: who builds an image lists what its usual start reads, and more would be fetched before each start.
const mostBuilt = 20_000

// builtOrder is the files that come before the landmark of a layer that was built in this form. An image keeps the order
// that its maker has given it, in all copies of it.
type builtOrder struct {
	files  []string
	marked bool
	over   bool
}

func (o *builtOrder) add(name string, kind byte) {
	switch {
	case o.over:
	case name == estargz.PrefetchLandmark:
		o.marked, o.over = true, true
	case isOurs(name) || len(o.files) == mostBuilt:
		o.over = true
	case kind != tar.TypeDir:
		o.files = append(o.files, "/"+name)
	}
}

// first returns these files; none: the layer was not built in this form, or without a list.
func (o *builtOrder) first() []string {
	if !o.marked {
		return nil
	}
	return o.files
}
