package snapshotter

import (
	"errors"
	"strings"
)

// Labels that containerd puts on the snapshots of a pull; it overwrites those that an image brings itself.
const (
	labelReference = "containerd.io/snapshot/cri.image-ref"
	labelTOC       = "containerd.io/snapshot/stargz/toc.digest"
)

// Why a layer is not mounted lazily but fetched whole; each is a value of the counter's label.
const (
	ReasonUntrusted = "untrusted"
	ReasonPlain     = "plain"
	ReasonRegistry  = "registry"
	ReasonDenied    = "denied"
	ReasonMounts    = "mounts"
)

// errNotLazy carries the reason to whoever counts.
type errNotLazy struct {
	reason string
	err    error
}

func (e *errNotLazy) Error() string { return e.err.Error() }
func (e *errNotLazy) Unwrap() error { return e.err }

// lazily says why a layer with these labels is not to be mounted lazily; nil when it is.
//
// A layer that is mounted lazily is not checked against the digest of its content that the image's configuration names,
// since nobody has read it whole. Whoever makes an image could so pass off his layer as that of another image. So only
// images of repositories are mounted in which none but the platform writes, and which it has checked.
func lazily(labels map[string]string, trusted []string) error {
	reference := labels[labelReference]
	for _, beginning := range trusted {
		if !strings.HasPrefix(reference, beginning) {
			continue
		}
		if labels[labelTOC] == "" {
			return &errNotLazy{ReasonPlain, errors.New("the layer has no table of contents: it is not eStargz")}
		}
		return nil
	}
	return &errNotLazy{ReasonUntrusted, errors.New("images of this name are not mounted lazily")}
}
