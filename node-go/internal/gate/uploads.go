package gate

import (
	"crypto/rand"
	"encoding/hex"
	"net/url"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	mostUploads = 4096
	// An image has 127 layers at most, and each may begin one.
	mostOfToken = 256
	// Longer than a token lives.
	uploadLives = time.Hour
)

type upload struct {
	token, repository string
	// Where it is at the registry; nil: the registry was asked to begin it.
	at    *url.URL
	until time.Time
}

// uploads knows where each upload under way is at the registry.
type uploads struct {
	mu    sync.Mutex
	known map[string]upload
	now   func() time.Time
	count prometheus.Gauge
}

func newUploads(count prometheus.Gauge) *uploads {
	return &uploads{known: map[string]upload{}, now: time.Now, count: count}
}

// begin returns the number of an upload, which begins when it has moved somewhere; false: there are too many, or too many
// of the token with this id.
func (u *uploads) begin(token, repository string) (string, bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	now, own := u.now(), 0
	for number, one := range u.known {
		if now.After(one.until) {
			delete(u.known, number)
		} else if one.token == token {
			own++
		}
	}
	defer func() { u.count.Set(float64(len(u.known))) }()
	if len(u.known) >= mostUploads || own >= mostOfToken {
		return "", false
	}
	random := make([]byte, 16)
	_, _ = rand.Read(random) // it never fails
	number := hex.EncodeToString(random)
	u.known[number] = upload{token, repository, nil, now.Add(uploadLives)}
	return number, true
}

// at returns where an upload to a repository is.
func (u *uploads) at(number, repository string) (url.URL, bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	one, known := u.known[number]
	if !known || one.at == nil || one.repository != repository || u.now().After(one.until) {
		return url.URL{}, false
	}
	return *one.at, true
}

// moved notes where an upload goes on.
func (u *uploads) moved(number string, at url.URL) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if one, known := u.known[number]; known {
		one.at = &at
		u.known[number] = one
	}
}

// drop forgets an upload that the registry has not begun.
func (u *uploads) drop(number string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.known[number].at == nil {
		u.forget(number)
	}
}

func (u *uploads) end(number string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.forget(number)
}

func (u *uploads) forget(number string) {
	delete(u.known, number)
	u.count.Set(float64(len(u.known)))
}
