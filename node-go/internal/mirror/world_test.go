package mirror

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/prometheus/client_golang/prometheus"

	"rollbox.dev/node/internal/problem"
	"rollbox.dev/node/internal/wire"
)

// server is a registry that notes what it is asked; meddle may answer in its place.
type server struct {
	host   string
	mu     sync.Mutex
	asked  []string
	meddle func(w http.ResponseWriter, r *http.Request) bool
	inner  http.Handler
}

func serve(t *testing.T) *server { return serveAt(t, "127.0.0.1:0") }

func serveAt(t *testing.T, address string) *server {
	t.Helper()
	s := &server{}
	s.empty()
	listening := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.asked = append(s.asked, r.Method+" "+r.URL.RequestURI())
		meddle, inner := s.meddle, s.inner
		s.mu.Unlock()
		if meddle == nil || !meddle(w, r) {
			inner.ServeHTTP(w, r)
		}
	}))
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	_ = listening.Listener.Close()
	listening.Listener = listener
	listening.Start()
	t.Cleanup(listening.Close)
	s.host = strings.TrimPrefix(listening.URL, "http://")
	return s
}

func (s *server) count(method, part string) (found int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.asked {
		if strings.HasPrefix(one, method+" ") && strings.Contains(one, part) {
			found++
		}
	}
	return found
}

func (s *server) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = nil
}

func (s *server) interfere(meddle func(http.ResponseWriter, *http.Request) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.meddle = meddle
}

// empty takes all that it has.
func (s *server) empty() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inner = registry.New(registry.Logger(log.New(io.Discard, "", 0)))
}

// push puts an image there and returns REPOSITORY@DIGEST.
func (s *server) push(t *testing.T, path string, image v1.Image) string {
	t.Helper()
	where, err := name.NewRepository(s.host+"/"+path, name.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	digest, err := image.Digest()
	if err != nil {
		t.Fatal(err)
	}
	at := where.Digest(digest.String())
	if err := remote.Write(at, image); err != nil {
		t.Fatal(err)
	}
	return at.String()
}

func image(t *testing.T, layers ...string) v1.Image {
	t.Helper()
	made := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	for _, text := range layers {
		next, err := mutate.AppendLayers(made, static.NewLayer([]byte(text), types.OCILayer))
		if err != nil {
			t.Fatal(err)
		}
		made = next
	}
	return made
}

func layerOf(t *testing.T, image v1.Image, number int) string {
	t.Helper()
	layers, err := image.Layers()
	if err != nil {
		t.Fatal(err)
	}
	digest, err := layers[number].Digest()
	if err != nil {
		t.Fatal(err)
	}
	return digest.String()
}

// copierFor returns a copier, whose copies have ended when the test has.
func copierFor(t *testing.T, upstream, private *server, stall time.Duration) *Copier {
	t.Helper()
	transport, err := Private("")
	if err != nil {
		t.Fatal(err)
	}
	copier := NewCopier(Options{
		Registry: private.host, Credentials: authn.Anonymous, Private: transport,
		PlainRegistries: []string{upstream.host},
		Upstream:        NewRetryAfter(NewGuard([]string{upstream.host}).Transport(stall)),
		CopiesAtOnce:    2, LayersAtOnce: 2, MaxImageBytes: 1 << 30,
		Metrics: NewMetrics(prometheus.NewRegistry()),
		Folder:  t.TempDir(),
	})
	// A copy that no caller waits for any more ends after its callers: the folder and the servers stay until it has.
	t.Cleanup(copier.Wait)
	return copier
}

func wish(source string) *wire.CopyRequest {
	return &wire.CopyRequest{Source: source, Target: "mirror/app", Form: wire.ImageForm_PLAIN, Architectures: []string{"amd64"}}
}

func lazyWish(source string) *wire.CopyRequest {
	asked := wish(source)
	asked.Form, asked.Target, asked.Through = wire.ImageForm_ESTARGZ, "estargz/app", "mirror/app"
	return asked
}

func quiet(*wire.CopyProgress) error { return nil }

func copied(t *testing.T, c *Copier, asked *wire.CopyRequest) *wire.Copied {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	result, err := c.Copy(ctx, asked, quiet)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func refused(t *testing.T, c *Copier, asked *wire.CopyRequest) *problem.Problem {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	result, err := c.Copy(ctx, asked, quiet)
	if err == nil {
		t.Fatalf("it was copied: %v", result)
	}
	return problem.From(err)
}

func told(p *problem.Problem) string {
	return fmt.Sprintf("%s %s %s", p.Code, p.Details["side"], p.Details["outcome"])
}
