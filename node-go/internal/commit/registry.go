package commit

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"regexp"
	"runtime"
	"slices"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/stream"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/sync/errgroup"

	"rollbox.dev/node/internal/distribution"
	"rollbox.dev/node/internal/problem"
	"rollbox.dev/node/internal/wire"
)

const (
	// Overlay file systems take no more.
	maxLayers = 127
	// Of one commit.
	layersAtOnce = 3
	// So often what it needs of its base may have been collected while it was sent.
	mostCollected = 3
	dialsIn       = 5 * time.Second
	answersIn     = time.Minute
	// Of an image that got no name.
	removesIn = 10 * time.Second
	// What the history of an image says of a layer that is there for its folders.
	createdFolders = "rollbox commit: folders"
)

// The library takes more for a name than registries do, ../ among it.
var repositoryName = regexp.MustCompile(`^[a-z0-9]+(([._]|__|-+)[a-z0-9]+)*(/[a-z0-9]+(([._]|__|-+)[a-z0-9]+)*)*$`)

// retries are of what breaks off and can be sent again.
var retries = remote.Backoff{Duration: 300 * time.Millisecond, Factor: 3, Jitter: 0.2, Steps: 3}

// registry is that of one commit.
type registry struct {
	address string
	puller  *remote.Puller
	pusher  *remote.Pusher
	once    *remote.Pusher // of what can be read only once
	anew    func() (*remote.Pusher, error)
	uploads *uploads
	idle    func()
	base    name.Digest
	target  name.Tag
}

func open(ctx context.Context, asked *wire.CommitRequest) (*registry, error) {
	at := asked.GetRegistry()
	base, err := name.NewDigest(at.GetAddress()+"/"+asked.GetBase(), name.StrictValidation)
	if err != nil {
		return nil, problem.New(problem.InvalidArgument, "base: %w", err)
	}
	target, err := name.NewTag(at.GetAddress()+"/"+asked.GetTarget(), name.StrictValidation)
	if err != nil {
		return nil, problem.New(problem.InvalidArgument, "target: %w", err)
	}
	for _, one := range []name.Repository{base.Context(), target.Context()} {
		if !repositoryName.MatchString(one.RepositoryStr()) {
			return nil, problem.New(problem.InvalidArgument, "%.200q is not the name of a repository", one.RepositoryStr())
		}
	}
	if base.RegistryStr() != at.GetAddress() || target.RegistryStr() != at.GetAddress() {
		return nil, problem.New(problem.InvalidArgument, "registry: %.200q is no address of a registry", at.GetAddress())
	}
	if _, err := netip.ParseAddrPort(at.GetConnect()); err != nil {
		return nil, problem.New(problem.InvalidArgument, "registry: connect: %w", err)
	}
	tlsConfig := &tls.Config{MinVersion: tls.VersionTLS12}
	if authority := at.GetAuthority(); authority != "" {
		tlsConfig.RootCAs = x509.NewCertPool()
		if !tlsConfig.RootCAs.AppendCertsFromPEM([]byte(authority)) {
			return nil, problem.New(problem.InvalidArgument, "registry: its authority has no certificate")
		}
	}
	dialer := net.Dialer{Timeout: dialsIn}
	round := &http.Transport{
		// Names are resolved by the control plane: this process reaches no name server.
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, network, at.GetConnect())
		},
		TLSClientConfig: tlsConfig, ForceAttemptHTTP2: true, MaxIdleConnsPerHost: layersAtOnce + 1,
		TLSHandshakeTimeout: 10 * time.Second, ResponseHeaderTimeout: answersIn,
	}
	options := []remote.Option{
		remote.WithContext(ctx), remote.WithTransport(secure{round}), remote.WithUserAgent("rollbox-node"),
		remote.WithRetryBackoff(retries),
		remote.WithPlatform(v1.Platform{OS: "linux", Architecture: runtime.GOARCH}),
		remote.WithAuth(authn.FromConfig(authn.AuthConfig{
			Username: at.GetCredentials().GetUsername(), Password: at.GetCredentials().GetPassword(),
			RegistryToken: at.GetCredentials().GetIdentityToken(),
		})),
	}
	puller, err := remote.NewPuller(options...)
	if err != nil {
		return nil, err
	}
	anew := func() (*remote.Pusher, error) { return remote.NewPusher(options...) }
	pusher, err := anew()
	if err != nil {
		return nil, err
	}
	begun := &uploads{next: secure{round}}
	once, err := remote.NewPusher(append(slices.Clone(options), remote.WithTransport(begun), remote.WithRetryBackoff(remote.Backoff{Steps: 1}), remote.WithRetryStatusCodes())...)
	return &registry{at.GetAddress(), puller, pusher, once, anew, begun, round.CloseIdleConnections, base, target}, err
}

// secure asks nothing without TLS: the library tries that with private addresses that refuse TLS, with the credentials.
type secure struct{ next http.RoundTripper }

func (s secure) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.URL.Scheme != "https" {
		return nil, errors.New("it does not take TLS")
	}
	return s.next.RoundTrip(request)
}

// from returns what the new layer is to lie on, the image that a sandbox was started from or that without its top layer,
// which is returned too; and has the layers in the repository of the commit.
func (r *registry) from(ctx context.Context, squash bool) (image v1.Image, top tops, err error) {
	got, err := r.puller.Get(ctx, r.base)
	if err != nil {
		return nil, top, r.failed(err)
	}
	if image, err = got.Image(); err != nil {
		return nil, top, r.failed(err)
	}
	if squash {
		if image, top, err = withoutTops(image); err != nil {
			return nil, top, r.failed(err)
		}
	}
	layers, err := image.Layers()
	if err != nil {
		return nil, top, r.failed(err)
	}
	if err := checkLayers(len(layers)); err != nil {
		return nil, top, err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(layersAtOnce)
	for _, one := range layers {
		// In the same registry, so nothing of it passes here.
		group.Go(func() error { return r.pusher.Upload(ctx, r.target.Context(), one) })
	}
	return image, top, r.failed(group.Wait())
}

func checkLayers(below int) error {
	if below < maxLayers {
		return nil
	}
	detail := "its image has %d layers already, and nodes take %d at most"
	return problem.New(problem.Unsupported, detail, below, maxLayers).With("value", fmt.Sprintf("an image of fewer than %d layers", maxLayers))
}

// with returns an image with one more layer of nothing but folders.
func (r *registry) with(base v1.Image, folders func(io.Writer) error) (v1.Image, error) {
	layers, err := base.Layers()
	if err != nil {
		return nil, err
	}
	if err := checkLayers(len(layers) + 1); err != nil {
		return nil, err
	}
	var text bytes.Buffer
	if err := folders(&text); err != nil {
		return nil, err
	}
	of, err := mediaType(base)
	if err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text.Bytes())), nil }
	made, err := tarball.LayerFromOpener(open, tarball.WithMediaType(of))
	if err != nil {
		return nil, err
	}
	return mutate.Append(base, mutate.Addendum{Layer: made, History: v1.History{Created: v1.Time{Time: time.Now().UTC()}, CreatedBy: createdFolders}})
}

// mediaType returns that of layers of an image.
func mediaType(base v1.Image) (types.MediaType, error) {
	kind, err := base.MediaType()
	if kind == types.OCIManifestSchema1 {
		return types.OCILayer, err
	}
	return types.DockerLayer, err
}

// send puts a layer into the registry, compressed as it is read.
func (r *registry) send(ctx context.Context, base v1.Image, from io.ReadCloser) (*stream.Layer, error) {
	of, err := mediaType(base)
	if err != nil {
		return nil, r.failed(err)
	}
	made := stream.NewLayer(from, stream.WithMediaType(of))
	if err := r.once.Upload(ctx, r.target.Context(), made); err != nil {
		r.uploads.cancel(ctx)
		return nil, err
	}
	return made, nil
}

// withoutVolumes returns the image without folders that are volumes: what is in these is in its layers, and would be copied
// at each start.
func withoutVolumes(image v1.Image) (v1.Image, error) {
	file, err := image.ConfigFile()
	if err != nil || len(file.Config.Volumes) == 0 {
		return image, err
	}
	config := *file.Config.DeepCopy()
	config.Volumes = nil
	return mutate.Config(image, config)
}

// name gives the image its name: until then, nothing of it is offered.
func (r *registry) name(ctx context.Context, base v1.Image, made *stream.Layer) (digest string, err error) {
	now := v1.Time{Time: time.Now().UTC()}
	image, err := mutate.Append(base, mutate.Addendum{Layer: made, History: v1.History{Created: now, CreatedBy: "rollbox commit"}})
	if err != nil {
		return "", err
	}
	if image, err = mutate.CreatedAt(image, now); err != nil {
		return "", err
	}
	if image, err = withoutVolumes(image); err != nil {
		return "", err
	}
	if kind, err := image.MediaType(); err == nil && kind == types.OCIManifestSchema1 {
		of := map[string]string{"org.opencontainers.image.base.digest": r.base.DigestStr()}
		image = mutate.Annotations(image, of).(v1.Image)
	}
	hash, err := image.Digest()
	if err != nil {
		return "", err
	}
	// A tag of its own first, which no later commit takes: an image without any tag would be listed by no registry.
	err = r.pusher.Push(ctx, r.target.Tag("id-"+hash.Hex), image)
	// What the registry had of the base layers may have been collected meanwhile: with nothing remembered they are found
	// where the base image has them. The layer of the sandbox is young, and stays.
	for attempt := 0; distribution.Collected(err) && attempt < mostCollected; attempt++ {
		if r.pusher, err = r.anew(); err == nil {
			err = r.pusher.Push(ctx, r.target.Tag("id-"+hash.Hex), image)
		}
	}
	if err == nil {
		err = r.pusher.Put(ctx, r.target, image)
	}
	if err != nil {
		return "", r.withdrawn(ctx, hash, r.failed(err))
	}
	return hash.String(), nil
}

// withdrawn removes an image whose naming has failed: the registry may have it all the same.
func (r *registry) withdrawn(ctx context.Context, hash v1.Hash, why error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removesIn)
	defer cancel()
	err := r.pusher.Delete(ctx, r.target.Digest(hash.String()))
	var answered *transport.Error
	if err == nil || errors.As(err, &answered) && answered.StatusCode == http.StatusNotFound {
		return why
	}
	found := problem.From(why)
	return problem.New(found.Code, "%s; whether the image %s@%s is there is not known: %w", found.Detail, r.target.RepositoryStr(), hash, err)
}

// failed returns the problem that a failure of the registry is.
func (r *registry) failed(err error) error {
	var known *problem.Problem
	var answered *transport.Error
	switch {
	case err == nil, errors.As(err, &known), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case !errors.As(err, &answered):
		return problem.New(problem.UpstreamTimeout, "the private registry %s was not reached, or broke off: %w", r.address, err)
	}
	if distribution.Full(err) {
		return problem.New(problem.ImageStoreFull, "the private registry %s has no room: %w", r.address, err)
	}
	switch answered.StatusCode {
	case http.StatusNotFound:
		return problem.New(problem.ImageNotFound, "the private registry does not have the image that the sandbox was started from any more (%s)", r.base.DigestStr())
	case http.StatusUnauthorized, http.StatusForbidden:
		return problem.New(problem.Internal, "the private registry %s does not take the account of this release, as while an upgrade of it is under way: %w", r.address, err)
	}
	return problem.New(problem.UpstreamTimeout, "the private registry %s: %w", r.address, err)
}
