package gate

import (
	"bytes"
	"crypto/x509"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/prometheus/client_golang/prometheus"

	"rollbox.dev/node/doubles/gatetest"
)

const (
	own   = "commits/alice/repo"
	base  = "mirror/base"
	blob  = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	known = "0123456789abcdef0123456789abcdef"
)

// world is a registry with an account, and a gate to it.
type world struct {
	t      *testing.T
	key    *gatetest.Key
	gate   *Gate
	server *httptest.Server
	behind *httptest.Server

	mu     sync.Mutex
	shown  []string // what the registry was shown, with what it was asked
	meddle func(w http.ResponseWriter, r *http.Request) bool

	metrics *prometheus.Registry
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, metrics: prometheus.NewRegistry()}
	inner := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	w.behind = httptest.NewServer(http.HandlerFunc(func(answer http.ResponseWriter, r *http.Request) {
		w.mu.Lock()
		w.shown = append(w.shown, r.Method+" "+r.URL.RequestURI()+" "+r.Header.Get("Authorization"))
		meddle := w.meddle
		w.mu.Unlock()
		if user, password, _ := r.BasicAuth(); user != "push" || password != "secret" {
			answer.Header().Set("WWW-Authenticate", `Basic realm="r"`)
			answer.WriteHeader(http.StatusUnauthorized)
			return
		}
		if meddle == nil || !meddle(answer, r) {
			inner.ServeHTTP(answer, r)
		}
	}))
	t.Cleanup(w.behind.Close)
	w.key = gatetest.New(t)
	account := &authn.Basic{Username: "push", Password: "secret"}
	var err error
	if w.gate, err = New(strings.TrimPrefix(w.behind.URL, "http://"), w.key.Certificate, account, http.DefaultTransport, NewMetrics(w.metrics)); err != nil {
		t.Fatal(err)
	}
	w.server = httptest.NewTLSServer(w.gate)
	t.Cleanup(w.server.Close)
	return w
}

var allowed = map[string][]string{base: {"pull"}, own: {"pull", "push", "delete"}}

func (w *world) token(changes jwt.MapClaims) string { return w.key.Token(allowed, changes) }

// ask returns the answer to one request, its body read.
func (w *world) ask(method, path, token string, body io.Reader) (*http.Response, string) {
	w.t.Helper()
	request, err := http.NewRequest(method, w.server.URL+path, body)
	if err != nil {
		w.t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	answer, err := w.server.Client().Transport.RoundTrip(request)
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	text, _ := io.ReadAll(answer.Body)
	return answer, string(text)
}

func (w *world) interfere(meddle func(http.ResponseWriter, *http.Request) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.meddle = meddle
}

func (w *world) asked() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]string(nil), w.shown...)
}

func TestAnImageGoesInAndOutWithATokenAndTheRegistrySeesItsAccountAlone(t *testing.T) {
	w := newWorld(t)
	behind := strings.TrimPrefix(w.behind.URL, "http://")
	below, _ := random.Image(1000, 2)
	at, _ := name.ParseReference(behind + "/" + base + ":1")
	if err := remote.Write(at, below, remote.WithAuth(&authn.Basic{Username: "push", Password: "secret"})); err != nil {
		t.Fatal(err)
	}
	w.mu.Lock()
	w.shown = nil
	w.mu.Unlock()
	token := w.token(nil)
	options := []remote.Option{
		remote.WithTransport(w.server.Client().Transport), remote.WithAuth(&authn.Bearer{Token: token}),
	}
	through := strings.TrimPrefix(w.server.URL, "https://")
	source, _ := name.ParseReference(through + "/" + base + ":1")
	image, err := remote.Image(source, options...)
	if err != nil {
		t.Fatal(err)
	}
	layer, _ := random.Layer(5<<20, "application/vnd.oci.image.layer.v1.tar+gzip")
	if image, err = mutate.AppendLayers(image, layer); err != nil {
		t.Fatal(err)
	}
	target, _ := name.ParseReference(through + "/" + own + ":1")
	if err := remote.Write(target, image, options...); err != nil {
		t.Fatal(err)
	}
	got, err := remote.Image(target, options...)
	if err != nil {
		t.Fatal(err)
	}
	want, _ := image.Digest()
	if digest, err := got.Digest(); err != nil || digest != want {
		t.Fatal(digest, err)
	}
	for _, one := range w.asked() {
		if strings.Contains(one, token) {
			t.Fatal(one)
		}
	}
}

func TestWhatATokenDoesNotAllowNeverReachesTheRegistry(t *testing.T) {
	w := newWorld(t)
	for _, one := range []struct {
		method, path string
		want         int
	}{
		{"POST", "/v2/commits/bob/repo/blobs/uploads/", 403},
		{"POST", "/v2/commits/alice/repo/below/blobs/uploads/", 403},
		{"POST", "/v2/" + base + "/blobs/uploads/", 403},
		{"PUT", "/v2/" + base + "/manifests/1", 403},
		{"DELETE", "/v2/" + base + "/manifests/" + blob, 403},
		{"GET", "/v2/commits/bob/repo/manifests/1", 403},
		{"GET", "/v2/commits/bob/repo/blobs/" + blob, 403},
		{"POST", "/v2/" + own + "/blobs/uploads/?mount=" + blob + "&from=commits/bob/repo", 403},
		{"POST", "/v2/" + own + "/blobs/uploads/?mount=" + blob, 400},
		{"POST", "/v2/" + own + "/blobs/uploads/?mount=" + blob + "&from=../x", 400},
		{"GET", "/v2/_catalog", 400},
		{"GET", "/v2/" + own + "/tags/list", 400},
		{"GET", "/v2/" + own + "/manifests/..%2f..%2fcommits%2fbob%2frepo%2fmanifests%2f1", 400},
		{"GET", "/v2/" + own + "/../bob/repo/manifests/1", 400},
		{"GET", "/v2/" + own + "//manifests/1", 400},
		{"DELETE", "/v2/" + own + "/blobs/" + blob, 400},
		{"PATCH", "/v2/" + own + "/blobs/uploads/" + known, 404},
		{"PUT", "/v2/" + own + "/blobs/uploads/" + known + "?digest=" + blob, 404},
		{"PUT", "/v2/" + own + "/blobs/uploads/" + known, 400},
		{"CONNECT", "/", 400},
	} {
		answer, text := w.ask(one.method, one.path, w.token(nil), nil)
		if answer.StatusCode != one.want {
			t.Errorf("%s %s: %d, want %d: %s", one.method, one.path, answer.StatusCode, one.want, text)
		}
	}
	if asked := w.asked(); len(asked) > 0 {
		t.Fatal(asked)
	}
}

func TestATokenOfAnotherKeyKindOrTimeIsRefused(t *testing.T) {
	w := newWorld(t)
	foreign := gatetest.New(t).Token(allowed, nil)
	said := gatetest.Claims(allowed, nil)
	unsigned, _ := jwt.NewWithClaims(jwt.SigningMethodNone, said).SignedString(jwt.UnsafeAllowNoneSignatureType)
	public, _ := x509.MarshalPKIXPublicKey(&w.key.Private.PublicKey)
	symmetric, _ := jwt.NewWithClaims(jwt.SigningMethodHS256, said).SignedString(public)
	for why, token := range map[string]string{
		"none": "", "no token": "x.y.z", "another key's": foreign, "unsigned": unsigned, "symmetric": symmetric,
		"over":              w.token(jwt.MapClaims{"exp": time.Now().Add(-2 * slack).Unix()}),
		"early":             w.token(jwt.MapClaims{"nbf": time.Now().Add(2 * slack).Unix()}),
		"endless":           w.token(jwt.MapClaims{"exp": nil}),
		"another service's": w.token(jwt.MapClaims{"aud": "rollbox-peers"}),
		"another issuer's":  w.token(jwt.MapClaims{"iss": "somebody"}),
	} {
		answer, _ := w.ask("POST", "/v2/"+own+"/blobs/uploads/", token, nil)
		if answer.StatusCode != http.StatusUnauthorized || !strings.HasPrefix(answer.Header.Get("WWW-Authenticate"), "Bearer ") {
			t.Errorf("%s: %d", why, answer.StatusCode)
		}
	}
	if asked := w.asked(); len(asked) > 0 {
		t.Fatal(asked)
	}
}

func TestACertificateThatIsRenewedHoldsAtOnce(t *testing.T) {
	w := newWorld(t)
	renewed := gatetest.New(t)
	text, err := os.ReadFile(renewed.Certificate)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(w.key.Certificate, text, 0o600); err != nil {
		t.Fatal(err)
	}
	for token, want := range map[string]int{
		w.token(nil): http.StatusUnauthorized, renewed.Token(allowed, nil): http.StatusAccepted,
	} {
		if answer, text := w.ask("POST", "/v2/"+own+"/blobs/uploads/", token, nil); answer.StatusCode != want {
			t.Fatal(answer.StatusCode, want, text)
		}
	}
}

func TestAnUploadIsOfOneRepositoryAndEnds(t *testing.T) {
	w := newWorld(t)
	answer, _ := w.ask("POST", "/v2/"+own+"/blobs/uploads/", w.token(nil), nil)
	at := answer.Header.Get("Location")
	if answer.StatusCode != http.StatusAccepted || !strings.HasPrefix(at, "/v2/"+own+"/blobs/uploads/") {
		t.Fatal(answer.StatusCode, at)
	}
	// Of another commit, which has its own token.
	theirs := w.key.Token(map[string][]string{"commits/bob/x": {"push"}}, nil)
	if answer, _ = w.ask("PATCH", at, theirs, strings.NewReader("theirs")); answer.StatusCode != http.StatusForbidden {
		t.Fatal(answer.StatusCode)
	}
	number := at[strings.LastIndex(at, "/")+1:]
	if answer, _ = w.ask("PATCH", "/v2/commits/bob/x/blobs/uploads/"+number, theirs, strings.NewReader("theirs")); answer.StatusCode != http.StatusNotFound {
		t.Fatal(answer.StatusCode)
	}
	if answer, _ = w.ask("PATCH", at, w.token(nil), strings.NewReader("content")); answer.StatusCode != http.StatusAccepted || answer.Header.Get("Location") != at {
		t.Fatal(answer.StatusCode, answer.Header)
	}
	if answer, text := w.ask("PUT", at+"?digest=sha256:ed7002b439e9ac845f22357d822bac1444730fbdb6016d3ec9432297b9ec9f73", w.token(nil), nil); answer.StatusCode != http.StatusCreated {
		t.Fatal(answer.StatusCode, text)
	}
	if answer, _ = w.ask("PATCH", at, w.token(nil), strings.NewReader("more")); answer.StatusCode != http.StatusNotFound {
		t.Fatal(answer.StatusCode)
	}
}

func TestUploadsAreBoundedAndLapse(t *testing.T) {
	known, now := newUploads(prometheus.NewGauge(prometheus.GaugeOpts{Name: "uploads"})), time.Now()
	known.now = func() time.Time { return now }
	var first string
	for number := range mostUploads {
		made, fits := known.begin(strconv.Itoa(number/mostOfToken), own)
		if !fits {
			t.Fatal(number)
		}
		if first == "" {
			first = made
			known.moved(first, *mustParse("http://r/x"))
		}
	}
	if _, there := known.at(first, own); !there {
		t.Fatal("an upload is gone")
	}
	if _, fits := known.begin("another", own); fits {
		t.Fatal("there is no bound")
	}
	now = now.Add(uploadLives + time.Second)
	if _, there := known.at(first, own); there {
		t.Fatal("an upload lives for ever")
	}
	if _, fits := known.begin("another", own); !fits || len(known.known) != 1 {
		t.Fatal(len(known.known))
	}
}

func TestOneTokenLeavesOthersRoomAndTheRegistryIsNotAskedBeyondIt(t *testing.T) {
	w := newWorld(t)
	one, other := w.token(jwt.MapClaims{"jti": "one"}), w.token(jwt.MapClaims{"jti": "other"})
	for range mostOfToken {
		if _, fits := w.gate.uploads.begin("one", own); !fits {
			t.Fatal("there is room")
		}
	}
	answer, _ := w.ask("POST", "/v2/"+own+"/blobs/uploads/", one, nil)
	if answer.StatusCode != http.StatusServiceUnavailable || answer.Header.Get("Retry-After") == "" || len(w.asked()) > 0 {
		t.Fatal(answer.StatusCode, w.asked())
	}
	if answer, _ = w.ask("POST", "/v2/"+own+"/blobs/uploads/", other, nil); answer.StatusCode != http.StatusAccepted {
		t.Fatal(answer.StatusCode)
	}
}

func TestAnUploadThatTheRegistryDoesNotHaveTakesNoPlace(t *testing.T) {
	w := newWorld(t)
	answer, _ := w.ask("POST", "/v2/"+own+"/blobs/uploads/", w.token(nil), nil)
	at := answer.Header.Get("Location")
	status := http.StatusInternalServerError
	w.interfere(func(answer http.ResponseWriter, r *http.Request) bool {
		if strings.Contains(r.URL.Path, "/blobs/") {
			answer.WriteHeader(status)
		}
		return strings.Contains(r.URL.Path, "/blobs/")
	})
	if answer, _ = w.ask("POST", "/v2/"+own+"/blobs/uploads/", w.token(nil), nil); answer.StatusCode != status {
		t.Fatal(answer.StatusCode)
	}
	if len(w.gate.uploads.known) != 1 {
		t.Fatal("one that was not begun takes a place", w.gate.uploads.known)
	}
	status = http.StatusNotFound // such as one that the registry has purged
	if answer, _ = w.ask("PATCH", at, w.token(nil), strings.NewReader("more")); answer.StatusCode != status {
		t.Fatal(answer.StatusCode)
	}
	if len(w.gate.uploads.known) != 0 {
		t.Fatal("one that is gone takes a place", w.gate.uploads.known)
	}
}

func TestWhereARegistrySendsRequestsOnToSeesNoAccount(t *testing.T) {
	w := newWorld(t)
	var shown []string
	elsewhere := httptest.NewServer(http.HandlerFunc(func(answer http.ResponseWriter, r *http.Request) {
		shown = append(shown, r.Header.Get("Authorization"))
		_, _ = answer.Write([]byte("layer"))
	}))
	t.Cleanup(elsewhere.Close)
	w.interfere(func(answer http.ResponseWriter, r *http.Request) bool {
		if !strings.Contains(r.URL.Path, "/blobs/") {
			return false
		}
		// Another name of this machine, so another host.
		http.Redirect(answer, r, strings.Replace(elsewhere.URL, "127.0.0.1", "localhost", 1), http.StatusTemporaryRedirect)
		return true
	})
	answer, text := w.ask("GET", "/v2/"+base+"/blobs/"+blob, w.token(nil), nil)
	if answer.StatusCode != http.StatusOK || text != "layer" || len(shown) != 1 || shown[0] != "" {
		t.Fatal(answer.StatusCode, text, shown)
	}
}

func TestWhatTheRegistrySaysOfItsAccountIsNotTheTokens(t *testing.T) {
	w := newWorld(t)
	w.gate.upstream.account = &authn.Basic{Username: "push", Password: "old"}
	answer, text := w.ask("POST", "/v2/"+own+"/blobs/uploads/", w.token(nil), nil)
	if answer.StatusCode != http.StatusForbidden || !strings.Contains(text, "does not take the account") {
		t.Fatal(answer.StatusCode, text)
	}
}

// accountOf tells what it is told to tell at each request.
type accountOf func() *authn.AuthConfig

func (a accountOf) Authorization() (*authn.AuthConfig, error) { return a(), nil }

func TestAnAccountThatIsRenewedHoldsAtOnce(t *testing.T) {
	w := newWorld(t)
	password := "old"
	w.gate.upstream.account = accountOf(func() *authn.AuthConfig { return &authn.AuthConfig{Username: "push", Password: password} })
	for _, want := range []int{http.StatusForbidden, http.StatusAccepted} {
		if answer, text := w.ask("POST", "/v2/"+own+"/blobs/uploads/", w.token(nil), nil); answer.StatusCode != want {
			t.Fatal(answer.StatusCode, want, text)
		}
		password = "secret"
	}
}

func TestARegistryThatIsAwayIsSaid(t *testing.T) {
	w := newWorld(t)
	w.behind.Close()
	answer, text := w.ask("GET", "/v2/"+base+"/manifests/1", w.token(nil), nil)
	if answer.StatusCode != http.StatusBadGateway || strings.Contains(text, "dial") {
		t.Fatal(answer.StatusCode, text)
	}
}

func TestAManifestIsBounded(t *testing.T) {
	w := newWorld(t)
	large := bytes.NewReader(make([]byte, maxManifest+1))
	if answer, text := w.ask("PUT", "/v2/"+own+"/manifests/1", w.token(nil), large); answer.StatusCode != http.StatusRequestEntityTooLarge {
		t.Fatal(answer.StatusCode, text)
	}
}

func mustParse(text string) *url.URL {
	found, err := url.Parse(text)
	if err != nil {
		panic(err)
	}
	return found
}
