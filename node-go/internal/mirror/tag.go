package mirror

import (
	"context"
	"errors"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"rollbox.dev/node/internal/problem"
	"rollbox.dev/node/internal/wire"
)

// What a tag meant is kept in the registry itself, as an index with one entry, so that it outlives mirror and control
// plane: they start what is here while the upstream registry is away.
const (
	tagPrefix      = "tag-"
	namedBy        = "dev.rollbox.named"
	absentSentence = "the private registry has no %s:%s"
)

// notedIn is what Known has the tags of a repository under; no registry's name.
func notedIn(wish request) string { return "tags/" + wish.target.RepositoryStr() }

func meaning(wish request, digest string) string { return wish.source.DigestStr() + " " + digest }

// noteOf keeps what the tag of a call means that has joined a copy; that of the copy's own call is kept already.
func (c *Copier) noteOf(ctx context.Context, wish request, result *wire.Copied) error {
	if wish.tag == "" || c.known.find(notedIn(wish), wish.tag) == meaning(wish, result.GetDigest()) {
		return nil
	}
	digest, err := v1.NewHash(result.GetDigest())
	if err != nil {
		return err
	}
	target, err := c.target(ctx)
	if err != nil {
		return fromRegistry(err, c.Registry)
	}
	return c.note(ctx, target, wish, digest)
}

// note keeps what the tag of a copy means now. Cost: nothing when this process has noted the same; else three requests.
func (c *Copier) note(ctx context.Context, target *endpoint, wish request, digest v1.Hash) error {
	if wish.tag == "" || c.known.find(notedIn(wish), wish.tag) == meaning(wish, digest.String()) {
		return nil
	}
	entry, err := target.puller.Head(ctx, wish.target.Digest(digest.String()))
	if err != nil {
		return fromRegistry(err, c.Registry)
	}
	pointer := manifest{mediaType: entry.MediaType, digest: entry.Digest, raw: make([]byte, entry.Size)}
	index, err := indexOf([]manifest{pointer}, map[string]string{namedBy: wish.source.DigestStr()})
	if err != nil {
		return err
	}
	if err := target.pusher.Put(ctx, wish.target.Tag(tagPrefix+wish.tag), index); err != nil {
		return fromRegistry(err, c.Registry)
	}
	c.known.add(notedIn(wish), wish.tag, meaning(wish, digest.String()))
	return nil
}

func (c *Copier) found(ctx context.Context, target *endpoint, where name.Repository, reference string) (*wire.FindReply, error) {
	if _, err := v1.NewHash(reference); err == nil {
		return c.head(ctx, target, where.Digest(reference), reference)
	}
	if !tagName.MatchString(reference) {
		return nil, invalid("reference %.200q is none", reference)
	}
	note, err := target.puller.Get(ctx, where.Tag(tagPrefix+reference))
	if absent(err) {
		return c.head(ctx, target, where.Tag(reference), reference)
	}
	if err != nil {
		return nil, fromRegistry(err, c.Registry)
	}
	index, err := note.ImageIndex()
	if err != nil {
		return nil, fromRegistry(err, c.Registry)
	}
	read, err := index.IndexManifest()
	if err != nil || len(read.Manifests) != 1 || note.MediaType != types.OCIImageIndex {
		return nil, fromRegistry(errors.Join(err, errors.New("what it has under the tag is no note")), c.Registry)
	}
	return &wire.FindReply{Digest: read.Manifests[0].Digest.String(), Named: read.Annotations[namedBy]}, nil
}

func (c *Copier) head(ctx context.Context, target *endpoint, at name.Reference, reference string) (*wire.FindReply, error) {
	there, err := target.puller.Head(ctx, at)
	if absent(err) {
		return nil, missing(at.Context(), reference)
	}
	if err != nil {
		return nil, fromRegistry(err, c.Registry)
	}
	return &wire.FindReply{Digest: there.Digest.String()}, nil
}

func missing(where name.Repository, reference string) error {
	return problem.New(problem.ImageNotFound, absentSentence, where.RepositoryStr(), reference).With("outcome", "absent").With("side", "registry")
}
