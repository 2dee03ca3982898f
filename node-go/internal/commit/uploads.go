package commit

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"sync"
)

// uploads remembers where the upload under way is, since the library does not end one that breaks off, and what was sent
// of it would take room in the registry for hours.
type uploads struct {
	next http.RoundTripper

	mu    sync.Mutex
	at    *url.URL
	token string
}

func (u *uploads) RoundTrip(request *http.Request) (*http.Response, error) {
	answer, err := u.next.RoundTrip(request)
	if err != nil || !strings.Contains(request.URL.Path, "/blobs/uploads/") {
		return answer, err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if at, wrong := answer.Location(); wrong == nil && at.Host == request.URL.Host && strings.Contains(at.Path, "/blobs/uploads/") {
		u.at, u.token = at, request.Header.Get("Authorization")
	}
	return answer, nil
}

// cancel ends the upload under way, whatever the registry says to it: it ends those that are left by itself, later.
func (u *uploads) cancel(ctx context.Context) {
	u.mu.Lock()
	at, token := u.at, u.token
	u.mu.Unlock()
	if at == nil {
		return
	}
	ctx, end := context.WithTimeout(context.WithoutCancel(ctx), removesIn)
	defer end()
	request, err := http.NewRequestWithContext(ctx, http.MethodDelete, at.String(), nil)
	if err != nil {
		return
	}
	if token != "" {
		request.Header.Set("Authorization", token)
	}
	if answer, err := u.next.RoundTrip(request); err == nil {
		_ = answer.Body.Close()
	}
}
