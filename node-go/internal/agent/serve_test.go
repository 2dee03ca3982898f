package agent

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"rollbox.dev/node/doubles/mtlstest"
	"rollbox.dev/node/doubles/played"
	"rollbox.dev/node/internal/problem"
	"rollbox.dev/node/internal/wire"
)

const (
	clientName = "control-plane.rollbox"
	serverName = "node-agent.rollbox"
)

// served is an agent that runs until the test ends.
type served struct {
	address   string
	folder    string
	authority *mtlstest.Authority
	stop      func() error
}

func serve(t *testing.T, runtime *played.Containerd, change ...func(*Settings)) *served {
	t.Helper()
	authority := mtlstest.NewAuthority(t)
	folder := filepath.Join(t.TempDir(), "tls")
	authority.Write(t, folder, serverName)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	settings := &Settings{
		Node: "node-1", Containerd: runtime.Start(t), TLS: folder, Client: clientName,
		Namespace: "rollbox-sandboxes", Handlers: []string{"runsc", "kata"}, Images: "/", Pulls: 1, Grace: 30 * time.Second,
	}
	for _, one := range change {
		one(settings)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- Serve(ctx, settings, listener, slog.New(slog.NewTextHandler(io.Discard, nil))) }()
	stop := func() error { cancel(); err := <-ended; ended <- err; return err }
	t.Cleanup(func() { _ = stop() })
	return &served{address: listener.Addr().String(), folder: folder, authority: authority, stop: stop}
}

func (s *served) client(t *testing.T, carried credentials.TransportCredentials) wire.NodeClient {
	t.Helper()
	connection, err := grpc.NewClient(s.address, grpc.WithTransportCredentials(carried))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	return wire.NewNodeClient(connection)
}

// as are the credentials of a client that trusts the agent's authority.
func (s *served) as(pairs ...tls.Certificate) *tls.Config {
	return &tls.Config{RootCAs: s.authority.Pool(), ServerName: serverName, Certificates: pairs}
}

func (s *served) controlPlane(t *testing.T) wire.NodeClient {
	return s.client(t, credentials.NewTLS(s.as(s.authority.Pair(t, clientName))))
}

func TestOnlyTheControlPlanesCertificateMayCall(t *testing.T) {
	s := serve(t, &played.Containerd{})
	other := mtlstest.NewAuthority(t)
	old := s.as(s.authority.Pair(t, clientName))
	old.MaxVersion = tls.VersionTLS12
	for name, carried := range map[string]credentials.TransportCredentials{
		"no TLS":                     insecure.NewCredentials(),
		"no certificate":             credentials.NewTLS(s.as()),
		"another authority's":        credentials.NewTLS(s.as(other.Pair(t, clientName))),
		"one that has expired":       credentials.NewTLS(s.as(s.authority.Expired(t, clientName))),
		"that of another agent":      credentials.NewTLS(s.as(s.authority.Pair(t, serverName))),
		"one whose name begins so":   credentials.NewTLS(s.as(s.authority.Pair(t, clientName+".example.com"))),
		"the right one over TLS 1.2": credentials.NewTLS(old),
	} {
		_, err := s.client(t, carried).Describe(t.Context(), &wire.DescribeRequest{})
		if status.Code(err) != codes.Unavailable {
			t.Errorf("%s: %v", name, err)
		}
	}
	told, err := s.controlPlane(t).Describe(t.Context(), &wire.DescribeRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if told.GetNode() != "node-1" || told.GetRuntime() != "containerd v2.1.9" || told.GetSnapshotter() != "stargz" {
		t.Errorf("%v", told)
	}
	if told.GetImagesSizeBytes() == 0 || told.GetImagesFreeBytes() > told.GetImagesSizeBytes() {
		t.Errorf("%v", told)
	}
}

func TestARenewedAuthorityNeedsNoRestart(t *testing.T) {
	s := serve(t, &played.Containerd{})
	before := s.controlPlane(t)
	if _, err := before.ListImages(t.Context(), &wire.ListImagesRequest{}); err != nil {
		t.Fatal(err)
	}
	s.authority = mtlstest.NewAuthority(t)
	s.authority.Write(t, s.folder, serverName)
	if _, err := s.controlPlane(t).ListImages(t.Context(), &wire.ListImagesRequest{}); err != nil {
		t.Error(err)
	}
}

func TestAProblemIsInTheTrailer(t *testing.T) {
	node := node(t)
	var trailer metadata.MD
	for _, bad := range []string{"", "a b", "ä", "a\x00"} {
		_, err := node.RemoveImage(t.Context(), &wire.RemoveImageRequest{Image: bad}, grpc.Trailer(&trailer))
		if found := problem.Received(trailer); err == nil || found == nil || found.Code != problem.InvalidArgument {
			t.Errorf("%q: %v, %v", bad, err, found)
		}
	}
	stream, err := node.Prefetch(t.Context(), &wire.PrefetchRequest{Image: "a:1", Credentials: &wire.Credentials{}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err == nil || problem.Received(stream.Trailer()) == nil {
		t.Errorf("%v, %v", err, stream.Trailer())
	}
}

func node(t *testing.T) wire.NodeClient {
	t.Helper()
	return serve(t, &played.Containerd{}).controlPlane(t)
}

func TestAPrefetchEndsWithTheImageHere(t *testing.T) {
	stream, err := node(t).Prefetch(t.Context(), &wire.PrefetchRequest{Image: "hub/a:1"})
	if err != nil {
		t.Fatal(err)
	}
	var last *wire.PrefetchProgress
	for {
		told, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		last = told
	}
	if last.GetState() != wire.PrefetchProgress_HERE || last.TotalBytes != nil {
		t.Errorf("%v", last)
	}
}

func TestAnAgentThatEndsLetsNobodyWait(t *testing.T) {
	begun := make(chan struct{})
	s := serve(t, &played.Containerd{Pulling: func(ctx context.Context, _ *cri.PullImageRequest) error {
		close(begun)
		<-ctx.Done()
		return ctx.Err()
	}})
	stream, err := s.controlPlane(t).Prefetch(t.Context(), &wire.PrefetchRequest{Image: "hub/a:1"})
	if err != nil {
		t.Fatal(err)
	}
	<-begun
	if err := s.stop(); err != nil {
		t.Error(err)
	}
	for err == nil {
		_, err = stream.Recv()
	}
	if found := problem.Received(stream.Trailer()); found == nil || found.Code != problem.Draining {
		t.Errorf("%v, %v", err, found)
	}
}

func TestWithoutCertificatesItDoesNotStart(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	settings := &Settings{TLS: t.TempDir(), Client: clientName}
	var setting *SettingError
	if err := Serve(t.Context(), settings, listener, slog.Default()); !errors.As(err, &setting) {
		t.Error(err)
	}
}

func TestCallsBeyondTheLimitAreRefused(t *testing.T) {
	limit, inside, let := limitUnary(1), make(chan struct{}), make(chan struct{})
	done := make(chan error)
	go func() {
		_, err := limit(t.Context(), nil, nil, func(context.Context, any) (any, error) {
			close(inside)
			<-let
			return nil, nil
		})
		done <- err
	}()
	<-inside
	quick := func(context.Context, any) (any, error) { return nil, nil }
	if _, err := limit(t.Context(), nil, nil, quick); problem.From(err).Code != problem.RateLimited {
		t.Error(err)
	}
	close(let)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if _, err := limit(t.Context(), nil, nil, quick); err != nil {
		t.Error(err)
	}
}
