package mirror

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"rollbox.dev/node/internal/problem"
	"rollbox.dev/node/internal/wire"
)

const (
	mostArchitectures = 4
	// Of repositories for converted copies.
	lazyFolder = "estargz/"
	// Of repositories for what was made of sandboxes, or built, here.
	commitsFolder = "commits/"
)

var (
	architecture = regexp.MustCompile(`^[a-z0-9]{1,10}$`)
	// The distribution specification's; the library takes more.
	path    = regexp.MustCompile(`^[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*)*$`)
	tagName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,123}$`)
)

// Converter makes another form of an image, in a folder that is this image's; the image that it returns may be read until
// that is removed. What an earlier attempt has left there it may go on with. It calls done after each layer, and worked
// with bytes that it has worked through. The files of a list come first in their layers.
type Converter func(
	ctx context.Context, image v1.Image, folder string, first []string, done func(), worked func(int64),
) (v1.Image, error)

// request is a checked CopyRequest. Requests with equal keys are for the same copy.
type request struct {
	source        name.Digest
	target        name.Repository
	form          wire.ImageForm
	architectures []string
	tag           string
	credentials   authn.AuthConfig
	// Where the image is that a conversion reads: the plain copy, or the source itself.
	through name.Repository
	// The private registry is full: nothing is sent.
	noRoom bool
	// A recorded copy: whose it is, and the files that come first in it. Of all other copies both are empty.
	whose string
	first []string
}

func (r request) key() string { return r.target.String() + " " + r.marker() }

// marker is the tag under which the private registry has a finished copy. Tags that users chose begin with another word.
// Each list of an owner has a recorded copy of its own, so what runs from one outlives the next. The collector reads from
// it whose the copy is.
func (r request) marker() string {
	if r.whose == "" {
		return "copy-" + r.what()
	}
	return "copy-" + r.what() + "-" + r.whose[:ownerDigits] + "-" + listOf(r.whose, r.first)
}

// verdict is the tag under which the private registry has whether a sandbox has started from a converted copy; of an
// owner's recorded copies from the one that was tried last.
func (r request) verdict() string {
	if r.whose == "" {
		return "boot-" + r.what()
	}
	return "boot-" + r.what() + "-" + r.whose
}

func (r request) what() string {
	_, hex, _ := strings.Cut(r.source.DigestStr(), ":")
	return fmt.Sprintf("%s-%s-%s", hex[:64], strings.ToLower(r.form.String()), strings.Join(r.architectures, "-"))
}

func (r request) auth() authn.Authenticator {
	if r.credentials.Username == "" && r.credentials.Password == "" {
		return authn.Anonymous
	}
	return authn.FromConfig(r.credentials)
}

func checked(asked *wire.CopyRequest, options Options) (request, error) {
	source, err := name.NewDigest(asked.GetSource(), name.StrictValidation)
	if err == nil && slices.Contains(options.PlainRegistries, source.RegistryStr()) {
		// Else the library asks by http what is on this machine or in a private network, and nothing else.
		source, err = name.NewDigest(asked.GetSource(), name.StrictValidation, name.Insecure)
	}
	if err != nil {
		return request{}, invalid("source %.200q: %w", asked.GetSource(), err)
	}
	target, err := repository(options.Registry, asked.GetTarget())
	if err != nil {
		return request{}, err
	}
	if asked.GetTag() != "" && !tagName.MatchString(asked.GetTag()) {
		return request{}, invalid("tag %.200q is none", asked.GetTag())
	}
	architectures, err := platforms(asked.GetArchitectures())
	if err != nil {
		return request{}, err
	}
	switch form := asked.GetForm(); {
	case form == wire.ImageForm_PLAIN:
	case form == wire.ImageForm_ESTARGZ && options.Forms[form] == nil:
		return request{}, problem.New(problem.Unsupported, "this mirror does not convert images to %s", form)
	case form != wire.ImageForm_ESTARGZ:
		return request{}, invalid("form %d is none", form)
	}
	wish := request{source: source, target: target, form: asked.GetForm(), architectures: architectures, tag: asked.GetTag(), noRoom: asked.GetNoRoom()}
	wish.credentials = authn.AuthConfig{Username: asked.GetUpstream().GetUsername(), Password: asked.GetUpstream().GetPassword()}
	if wish, err = wish.recorded(asked.GetWhose(), asked.GetFirst()); err != nil {
		return request{}, err
	}
	return wish.placed(asked.GetThrough(), options.Registry)
}

// placed keeps converted copies and all others apart. Nodes mount what is below `estargz/` without having read all of it,
// and so believe what is said there of the content of layers: only what a conversion has read and written is there.
func (r request) placed(through, registry string) (request, error) {
	if lazy := strings.HasPrefix(r.target.RepositoryStr(), lazyFolder); lazy != (r.form == wire.ImageForm_ESTARGZ) {
		return request{}, invalid("target %.200q: converted copies are below %s, and nothing else is", r.target.RepositoryStr(), lazyFolder)
	}
	if r.form == wire.ImageForm_PLAIN {
		return r, nil
	}
	found, err := repository(registry, through)
	switch {
	case err == nil && strings.HasPrefix(through, lazyFolder):
		err = invalid("through %.200q: it is a repository for converted copies", through)
	case err == nil && strings.HasPrefix(through, commitsFolder) && through != r.source.RepositoryStr():
		err = invalid("through %.200q: no copy is made there, and the source is another one", through)
	}
	r.through = found
	return r, err
}

// isPrivate reports whether the source of a conversion is in the private registry, where it is read as it is. Nodes may know
// the registry by another name than this program.
func (r request) isPrivate() bool { return strings.HasPrefix(r.through.RepositoryStr(), commitsFolder) }

// plain is the copy that a conversion reads.
func (r request) plain() request {
	r.form, r.target = wire.ImageForm_PLAIN, r.through
	r.whose, r.first = "", nil
	return r
}

func platforms(asked []string) ([]string, error) {
	found := slices.Compact(slices.Sorted(slices.Values(asked)))
	if len(found) < 1 || len(found) > mostArchitectures {
		return nil, invalid("%d architectures; it must be 1 to %d", len(found), mostArchitectures)
	}
	for _, one := range found {
		if !architecture.MatchString(one) {
			return nil, invalid("architecture %.40q is none", one)
		}
	}
	return found, nil
}

func repository(registry, asked string) (name.Repository, error) {
	found, err := name.NewRepository(registry+"/"+asked, name.StrictValidation)
	if err != nil || !path.MatchString(asked) {
		return name.Repository{}, invalid("repository %.200q is none", asked)
	}
	return found, nil
}

func invalid(format string, values ...any) *problem.Problem {
	return problem.New(problem.InvalidArgument, format, values...)
}
