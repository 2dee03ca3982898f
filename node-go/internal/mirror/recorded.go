package mirror

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	paths "path"
	"regexp"
	"strings"
	"unicode/utf8"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"rollbox.dev/node/internal/wire"
)

// A list comes from a sandbox, so it is an attacker's. It decides the order of the files in a copy that its owner alone
// gets, and nothing else.
const (
	mostFirst      = 20_000
	mostFirstBytes = 1 << 20
	mostPath       = 4096
	// The distribution specification's.
	mostTag = 128
	// Of what stands for an owner, and of what stands for a list of theirs, in the tag of a copy.
	ownerDigits = 16
	listDigits  = 12
	// Of a recorded copy's manifest: what stands for its owner.
	ownerAnnotation = "dev.rollbox.recorded-for"
)

var ownerKey = regexp.MustCompile(`^[0-9a-f]{24}$`)

// recorded adds whose copy it is, and the files that come first in it.
func (r request) recorded(whose string, first []string) (request, error) {
	switch {
	case whose == "" && len(first) == 0:
		return r, nil
	case r.form != wire.ImageForm_ESTARGZ:
		return r, invalid("first: only a converted copy has files that come first")
	case len(first) == 0:
		return r, invalid("first: it is empty, and whose is %.100q", whose)
	case len(first) > mostFirst:
		return r, invalid("first: %d files; it must be at most %d", len(first), mostFirst)
	}
	bytes := 0
	for _, one := range first {
		if len(one) > mostPath || !utf8.ValidString(one) || strings.ContainsRune(one, 0) || paths.Clean("/"+one) != one {
			return r, invalid("first: %.200q is no absolute path", one)
		}
		bytes += len(one)
	}
	if bytes > mostFirstBytes {
		return r, invalid("first: %d bytes; it must be at most %d", bytes, mostFirstBytes)
	}
	r.first = first
	return r.of(whose)
}

// of is a request for an owner's recorded copy.
func (r request) of(whose string) (request, error) {
	if !ownerKey.MatchString(whose) {
		return r, invalid("whose: %.100q is not 24 hexadecimal digits", whose)
	}
	if r.whose = whose; max(len(r.verdict()), len(r.marker())) > mostTag {
		return r, invalid("architectures: %d are too many for a recorded copy", len(r.architectures))
	}
	return r, nil
}

// listOf stands for a list of an owner. Who makes two lists that have the same digits gets one copy for both.
func listOf(whose string, first []string) string {
	sum := sha256.New()
	fmt.Fprintln(sum, whose)
	for _, one := range first {
		fmt.Fprintf(sum, "%q\n", one)
	}
	return fmt.Sprintf("%x", sum.Sum(nil))[:listDigits]
}

// owned gives an owner's recorded copy of one platform a manifest of its own. Equal lists of several owners give equal
// layers; were their manifests equal too, no registry could remove one owner's copy and keep another one's, since what it
// removes it knows by the digest alone. What a list has changed nothing of stays one of the common copy.
func (r request) owned(made v1.Image, common map[v1.Hash]bool) (v1.Image, error) {
	if r.whose == "" {
		return made, nil
	}
	digest, err := made.Digest()
	if err != nil || common[digest] {
		return made, err
	}
	own, ok := mutate.Annotations(made, map[string]string{ownerAnnotation: r.whose[:ownerDigits]}).(v1.Image)
	if !ok {
		return nil, errors.New("annotations made something else of the image")
	}
	return own, nil
}

// common is the digests of the images in the converted copy of all owners, if there is one and the wish is for a recorded
// copy. Cost: two requests.
func (e *endpoint) common(ctx context.Context, wish request) (map[v1.Hash]bool, error) {
	if wish.whose == "" {
		return nil, nil
	}
	wish.whose, wish.first = "", nil
	there, err := e.puller.Get(ctx, wish.target.Tag(wish.marker()))
	if absent(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	found := map[v1.Hash]bool{there.Digest: true}
	if !there.MediaType.IsIndex() {
		return found, nil
	}
	index, err := there.ImageIndex()
	if err != nil {
		return nil, err
	}
	entries, err := index.IndexManifest()
	if err != nil {
		return nil, err
	}
	for _, one := range entries.Manifests {
		found[one.Digest] = true
	}
	return found, nil
}
