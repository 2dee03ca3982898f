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

const mostArchitectures = 4

var (
	architecture = regexp.MustCompile(`^[a-z0-9]{1,10}$`)
	// The distribution specification's; the library takes more.
	path    = regexp.MustCompile(`^[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*)*$`)
	tagName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,123}$`)
)

// Converter makes another form of an image, in a folder that is its own and removed afterwards; the image that it
// returns may be read until then.
type Converter func(ctx context.Context, image v1.Image, folder string) (v1.Image, error)

// request is a checked CopyRequest. Requests with equal keys are for the same copy.
type request struct {
	source        name.Digest
	target        name.Repository
	form          wire.ImageForm
	architectures []string
	tag           string
	credentials   authn.AuthConfig
}

func (r request) key() string { return r.target.String() + " " + r.marker() }

// marker is the tag under which the private registry has a finished copy. Tags that users chose begin with another word.
func (r request) marker() string {
	_, hex, _ := strings.Cut(r.source.DigestStr(), ":")
	return fmt.Sprintf("copy-%s-%s-%s", hex[:64], strings.ToLower(r.form.String()), strings.Join(r.architectures, "-"))
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
	architectures := slices.Sorted(slices.Values(asked.GetArchitectures()))
	architectures = slices.Compact(architectures)
	if len(architectures) < 1 || len(architectures) > mostArchitectures {
		return request{}, invalid("%d architectures; it must be 1 to %d", len(architectures), mostArchitectures)
	}
	for _, one := range architectures {
		if !architecture.MatchString(one) {
			return request{}, invalid("architecture %.40q is none", one)
		}
	}
	switch form := asked.GetForm(); {
	case form == wire.ImageForm_PLAIN:
	case form == wire.ImageForm_ESTARGZ && options.Forms[form] == nil:
		return request{}, problem.New(problem.Unsupported, "this mirror does not convert images to %s", form)
	case form != wire.ImageForm_ESTARGZ:
		return request{}, invalid("form %d is none", form)
	}
	upstream := authn.AuthConfig{Username: asked.GetUpstream().GetUsername(), Password: asked.GetUpstream().GetPassword()}
	return request{source, target, asked.GetForm(), architectures, asked.GetTag(), upstream}, nil
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
