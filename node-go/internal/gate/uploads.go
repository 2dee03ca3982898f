package gate

import (
	"crypto/rand"
	"encoding/hex"
	"net/url"
	"sync"
	"time"
)

const (
	mostUploads = 4096
	// Longer than a token lives.
	uploadLives = time.Hour
)

type upload struct {
	repository string
	at         url.URL
	until      time.Time
}

// uploads knows where each upload under way is at the registry.
type uploads struct {
	mu    sync.Mutex
	known map[string]upload
	now   func() time.Time
}

func newUploads() *uploads { return &uploads{known: map[string]upload{}, now: time.Now} }

// begin returns the number of an upload; false: there are too many.
func (u *uploads) begin(repository string, at url.URL) (string, bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	now := u.now()
	if len(u.known) >= mostUploads {
		for number, one := range u.known {
			if now.After(one.until) {
				delete(u.known, number)
			}
		}
	}
	if len(u.known) >= mostUploads {
		return "", false
	}
	random := make([]byte, 16)
	_, _ = rand.Read(random) // it never fails
	number := hex.EncodeToString(random)
	u.known[number] = upload{repository, at, now.Add(uploadLives)}
	return number, true
}

// at returns where an upload to a repository is.
func (u *uploads) at(number, repository string) (url.URL, bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	one, known := u.known[number]
	return one.at, known && one.repository == repository && !u.now().After(one.until)
}

// moved notes where an upload goes on.
func (u *uploads) moved(number string, at url.URL) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if one, known := u.known[number]; known {
		one.at = at
		u.known[number] = one
	}
}

func (u *uploads) end(number string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.known, number)
}
