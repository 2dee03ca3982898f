package mirror

import (
	"context"
	"errors"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"rollbox.dev/node/internal/wire"
)

// Whether a sandbox has started from a converted copy is kept in the registry, as what a tag meant is: an index with the
// copy as its one entry. A copy that was made anew has no verdict until it is tried too.
const (
	bootKey   = "dev.rollbox.boot"
	bootWhy   = "dev.rollbox.boot-why"
	bootOK    = "booted"
	bootFails = "failed"
	mostWhy   = 1 << 10
)

// Judge keeps what became of the attempt to start a sandbox from a converted copy.
func (c *Copier) Judge(ctx context.Context, asked *wire.JudgeRequest) (*wire.JudgeReply, error) {
	wish, err := convertedFrom(c.Registry, asked.GetRepository(), asked.GetSource(), asked.GetWhose(), asked.GetArchitectures())
	if err != nil {
		return nil, err
	}
	if _, err := v1.NewHash(asked.GetDigest()); err != nil {
		return nil, invalid("digest %.200q: %w", asked.GetDigest(), err)
	}
	target, err := c.target(ctx)
	if err != nil {
		return nil, fromRegistry(err, c.Registry)
	}
	entry, err := target.puller.Head(ctx, wish.target.Digest(asked.GetDigest()))
	if err != nil {
		return nil, fromRegistry(err, c.Registry)
	}
	if known, err := c.verdictOn(ctx, target, wish); err != nil || (known.digest == entry.Digest && known.boot == wire.FindReply_BOOTED) {
		// What sandboxes have started from is not judged otherwise by one that has not.
		return &wire.JudgeReply{}, err
	}
	said := map[string]string{bootKey: bootOK}
	if !asked.GetBoots() {
		said = map[string]string{bootKey: bootFails, bootWhy: asked.GetWhy()[:min(mostWhy, len(asked.GetWhy()))]}
	}
	pointer := manifest{mediaType: entry.MediaType, digest: entry.Digest, raw: make([]byte, entry.Size)}
	index, err := indexOf([]manifest{pointer}, said)
	if err != nil {
		return nil, err
	}
	if err := target.pusher.Put(ctx, wish.target.Tag(wish.verdict()), index); err != nil {
		return nil, fromRegistry(err, c.Registry)
	}
	return &wire.JudgeReply{}, nil
}

// foundConverted returns the converted copy of a source, and what is known of starts from it.
func (c *Copier) foundConverted(ctx context.Context, target *endpoint, asked *wire.FindRequest) (*wire.FindReply, error) {
	wish, err := convertedFrom(c.Registry, asked.GetRepository(), asked.GetReference(), asked.GetWhose(), asked.GetArchitectures())
	if err != nil {
		return nil, err
	}
	if wish.whose != "" {
		return c.foundRecorded(ctx, target, wish)
	}
	reply, err := c.head(ctx, target, wish.target.Tag(wish.marker()), wish.marker())
	if err != nil {
		return nil, err
	}
	known, err := c.verdictOn(ctx, target, wish)
	if err != nil {
		return nil, err
	}
	if known.digest.String() == reply.GetDigest() {
		reply.Boot, reply.Why = known.boot, known.why
	}
	return reply, nil
}

// foundRecorded returns the recorded copy of an owner from which a sandbox has started last: of several lists' copies the
// verdict says which one.
func (c *Copier) foundRecorded(ctx context.Context, target *endpoint, wish request) (*wire.FindReply, error) {
	known, err := c.verdictOn(ctx, target, wish)
	if err != nil {
		return nil, err
	}
	if known.digest == (v1.Hash{}) {
		return nil, missing(wish.target, wish.verdict())
	}
	reply, err := c.head(ctx, target, wish.target.Digest(known.digest.String()), known.digest.String())
	if err != nil {
		return nil, err
	}
	reply.Boot, reply.Why = known.boot, known.why
	return reply, nil
}

type verdict struct {
	digest v1.Hash // of what was tried; of nothing where there is no verdict
	boot   wire.FindReply_Boot
	why    string
}

func (c *Copier) verdictOn(ctx context.Context, target *endpoint, wish request) (verdict, error) {
	note, err := target.puller.Get(ctx, wish.target.Tag(wish.verdict()))
	if absent(err) {
		return verdict{}, nil
	}
	if err != nil {
		return verdict{}, fromRegistry(err, c.Registry)
	}
	index, err := note.ImageIndex()
	if err != nil {
		return verdict{}, fromRegistry(err, c.Registry)
	}
	read, err := index.IndexManifest()
	if err != nil || len(read.Manifests) != 1 || note.MediaType != types.OCIImageIndex {
		return verdict{}, fromRegistry(errors.Join(err, errors.New("what it has under the tag is no verdict")), c.Registry)
	}
	found := verdict{read.Manifests[0].Digest, wire.FindReply_FAILED, read.Annotations[bootWhy]}
	if read.Annotations[bootKey] == bootOK {
		found.boot = wire.FindReply_BOOTED
	}
	return found, nil
}

func convertedFrom(registry, asked, source, whose string, architectures []string) (request, error) {
	where, err := repository(registry, asked)
	if err != nil {
		return request{}, err
	}
	digest, err := name.NewDigest(where.String()+"@"+source, name.StrictValidation)
	if err != nil {
		return request{}, invalid("source %.200q: %w", source, err)
	}
	found, err := platforms(architectures)
	wish := request{source: digest, target: where, form: wire.ImageForm_ESTARGZ, architectures: found}
	if err != nil || whose == "" {
		return wish, err
	}
	return wish.of(whose)
}
