package gate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
)

// Manifests; what else is sent is a layer, whose size the control plane bounds by the owner's bytes.
const maxManifest = 4 << 20

// What of a request goes on, and what of its answer comes back.
var (
	goesOn    = []string{"Accept", "Content-Type", "Content-Range", "Range", "User-Agent"}
	comesBack = []string{"Content-Type", "Content-Length", "Docker-Content-Digest", "Range", "Retry-After"}
)

// Gate is a handler of the registry's API for holders of tokens.
type Gate struct {
	judge    *judge
	upstream *upstream
	uploads  *uploads
	metrics  *Metrics
}

// New returns a gate to a registry (host and port).
//
// Args: certificate is the file of what tokens are signed by; account and next are of the registry.
func New(
	registry, certificate string, account authn.Authenticator, next http.RoundTripper, metrics *Metrics,
) (*Gate, error) {
	at, err := name.NewRegistry(registry)
	if err != nil {
		return nil, err
	}
	judge, err := newJudge(certificate)
	if err != nil {
		return nil, err
	}
	behind := &upstream{registry: at, account: account, next: next, clients: map[string]client{}}
	return &Gate{judge, behind, newUploads(metrics.uploads), metrics}, nil
}

func (g *Gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.metrics.requests.WithLabelValues(g.answer(w, r)).Inc()
}

// answer returns what became of a request.
func (g *Gate) answer(w http.ResponseWriter, r *http.Request) string {
	text, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	token, err := g.judge.read(text)
	if err != nil {
		w.Header().Set("WWW-Authenticate", fmt.Sprintf("Bearer realm=%q,service=%q", "https://"+r.Host+"/", service))
		refuse(w, http.StatusUnauthorized, "UNAUTHORIZED", "a token of the control plane is needed")
		return unauthorized
	}
	if r.URL.Path == "/v2/" {
		w.WriteHeader(http.StatusOK)
		return passed
	}
	asked, fits := understood(r)
	if !fits {
		refuse(w, http.StatusBadRequest, "UNSUPPORTED", "nothing that a commit has to ask")
		return unsupported
	}
	if !token.allow(asked.repository, asked.actions...) || asked.from != "" && !token.allow(asked.from, "pull") {
		refuse(w, http.StatusForbidden, "DENIED", "the token is for other repositories")
		return denied
	}
	if asked.kind == beginning {
		// Before the registry is asked: what it has begun is there until it is purged.
		number, fits := g.uploads.begin(token.id, asked.repository)
		if !fits {
			w.Header().Set("Retry-After", "10")
			refuse(w, http.StatusServiceUnavailable, "TOOMANYREQUESTS", "there are too many uploads under way")
			return busy
		}
		defer g.uploads.drop(number)
		asked.upload = number
	}
	ctx, cancel := context.WithDeadline(r.Context(), token.until)
	defer cancel()
	return g.pass(w, r.WithContext(ctx), asked, token.rights)
}

// pass asks the registry, tells what it says, and returns what became of the request.
func (g *Gate) pass(w http.ResponseWriter, r *http.Request, asked wish, allowed rights) string {
	at, there := g.place(r, asked)
	if !there {
		refuse(w, http.StatusNotFound, "BLOB_UPLOAD_UNKNOWN", "no upload to this repository has this number")
		return unknown
	}
	client, err := g.upstream.with(r.Context(), allowed)
	if err != nil {
		return g.failed(w, asked, err)
	}
	body := r.Body
	if asked.kind == content {
		body = http.MaxBytesReader(w, r.Body, maxManifest)
	}
	request, err := http.NewRequestWithContext(r.Context(), r.Method, at.String(), counted{body, g.metrics.sent})
	if err != nil {
		return g.failed(w, asked, err)
	}
	request.ContentLength = r.ContentLength
	if r.ContentLength == 0 {
		request.Body = http.NoBody
	}
	carry(request.Header, r.Header, goesOn)
	answer, err := client.Do(request)
	if err != nil {
		return g.failed(w, asked, err)
	}
	defer func() { _ = answer.Body.Close() }()
	return g.tell(w, answer, asked)
}

// place returns where a request goes to at the registry; false: it is of no upload that is under way.
func (g *Gate) place(r *http.Request, asked wish) (url.URL, bool) {
	if asked.kind != continuing {
		return url.URL{
			Scheme: g.upstream.registry.Scheme(), Host: g.upstream.registry.RegistryStr(), Path: r.URL.Path,
			RawQuery: asked.query.Encode(),
		}, true
	}
	at, there := g.uploads.at(asked.upload, asked.repository)
	query := at.Query()
	for key, values := range asked.query {
		query[key] = values
	}
	at.RawQuery = query.Encode()
	return at, there
}

// tell passes an answer on; an upload gets its number in the place of where it is.
func (g *Gate) tell(w http.ResponseWriter, answer *http.Response, asked wish) string {
	if answer.StatusCode == http.StatusUnauthorized || answer.StatusCode == http.StatusForbidden {
		// Of the account: the agent has to hear that its own token is not meant.
		refuse(w, http.StatusForbidden, "DENIED", "the registry does not take the account of this release for "+asked.repository)
		return account
	}
	if answer.StatusCode == http.StatusAccepted && asked.kind != content {
		at, err := answer.Location()
		if err != nil {
			return g.failed(w, asked, fmt.Errorf("it does not say where an upload is: %w", err))
		}
		g.uploads.moved(asked.upload, *at)
		w.Header().Set("Location", "/v2/"+asked.repository+"/blobs/uploads/"+asked.upload)
	} else if asked.kind == continuing && (answer.StatusCode < http.StatusBadRequest || answer.StatusCode == http.StatusNotFound) {
		g.uploads.end(asked.upload)
	}
	carry(w.Header(), answer.Header, comesBack)
	w.WriteHeader(answer.StatusCode)
	// What breaks off is found by its length or its digest.
	_, _ = io.Copy(w, answer.Body)
	return passed
}

// failed tells that the registry was not reached, in words that name no address but its own.
func (g *Gate) failed(w http.ResponseWriter, asked wish, err error) string {
	var answered *transport.Error
	if errors.As(err, &answered) && (answered.StatusCode == http.StatusUnauthorized || answered.StatusCode == http.StatusForbidden) {
		refuse(w, http.StatusForbidden, "DENIED", "the registry does not take the account of this release for "+asked.repository)
		return account
	}
	var more *http.MaxBytesError
	if errors.As(err, &more) {
		refuse(w, http.StatusRequestEntityTooLarge, "SIZE_INVALID", fmt.Sprintf("a manifest has %d bytes at most", maxManifest))
		return large
	}
	slog.Warn("the registry was not asked for a node", "repository", asked.repository, "error", err)
	refuse(w, http.StatusBadGateway, "UNAVAILABLE", "the registry "+g.upstream.registry.RegistryStr()+" was not reached, or broke off")
	return away
}

func carry(to, from http.Header, names []string) {
	for _, one := range names {
		if values := from.Values(one); len(values) > 0 {
			to[http.CanonicalHeaderKey(one)] = values
		}
	}
}

// refuse answers as registries do.
func refuse(w http.ResponseWriter, status int, code, message string) {
	text, _ := json.Marshal(map[string]any{"errors": []map[string]string{{"code": code, "message": message}}})
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(text)
}
