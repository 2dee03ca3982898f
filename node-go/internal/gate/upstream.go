package gate

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
)

// An upload is read once, so a token of the registry must not lapse as it begins; they live for minutes.
const freshFor = time.Minute

// upstream is the registry, with its account.
type upstream struct {
	registry name.Registry
	account  authn.Authenticator
	next     http.RoundTripper

	mu      sync.Mutex
	clients map[string]client
}

type client struct {
	http *http.Client
	made time.Time
}

// with returns a client that may do so much. The account is shown to the registry alone, wherever it sends requests on to.
func (u *upstream) with(ctx context.Context, allowed rights) (*http.Client, error) {
	scopes := allowed.scopes()
	key := strings.Join(scopes, " ")
	now := time.Now()
	u.mu.Lock()
	known, there := u.clients[key]
	u.mu.Unlock()
	if there && now.Sub(known.made) < freshFor {
		return known.http, nil
	}
	made, err := transport.NewWithContext(ctx, u.registry, u.account, u.next, scopes)
	if err != nil {
		return nil, err
	}
	known = client{&http.Client{Transport: made}, now}
	u.mu.Lock()
	defer u.mu.Unlock()
	for other, one := range u.clients {
		if now.Sub(one.made) >= freshFor {
			delete(u.clients, other)
		}
	}
	u.clients[key] = known
	return known.http, nil
}
