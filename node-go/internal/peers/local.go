package peers

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// TokenHeader is what containerd sends with each request, as its certs.d says: other processes of the node that reach the
// address have no business here.
const TokenHeader = "X-Rollbox-Peers"

// local answers this node's containerd.
type local struct {
	fetcher *fetcher
	token   string
	// Beginnings of names of images that are mounted lazily: nodes have no layers of these.
	without []string
	// Requests that are served at the same time; further ones are left to the registry.
	places chan struct{}
}

func (l *local) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if subtle.ConstantTimeCompare([]byte(r.Header.Get(TokenHeader)), []byte(l.token)) != 1 {
		http.Error(w, "for this node's containerd alone", http.StatusForbidden)
		return
	}
	name, digest, found := layerOf(r)
	if !found || l.isWithout(name) {
		http.NotFound(w, r)
		return
	}
	select {
	case l.places <- struct{}{}:
		defer func() { <-l.places }()
	default:
		http.NotFound(w, r)
		return
	}
	sent := l.fetcher.fetch(r.Context(), digest)
	if sent == nil {
		http.NotFound(w, r)
		return
	}
	how := pass(w, sent.answer, digest, l.fetcher.counts)
	sent.end(how)
	if how != whole {
		// An answer that ends without its end is what tells containerd that it is not whole.
		panic(http.ErrAbortHandler)
	}
}

// layerOf returns the name of the image and the layer that is asked for.
func layerOf(r *http.Request) (name, digest string, found bool) {
	path, isAPI := strings.CutPrefix(r.URL.Path, "/v2/")
	repository, digest, isBlob := strings.Cut(path, "/blobs/")
	name = r.URL.Query().Get("ns") + "/" + repository
	// A part of a layer cannot be told from something else.
	wanted := r.Method == http.MethodGet && r.Header.Get("Range") == ""
	return name, digest, wanted && isAPI && isBlob && digestForm.MatchString(digest)
}

func (l *local) isWithout(name string) bool {
	for _, one := range l.without {
		if strings.HasPrefix(name, one) {
			return true
		}
	}
	return false
}

// pass passes on what a node sends. The last bytes are held back until all of them are known to be right.
func pass(w http.ResponseWriter, answer *http.Response, digest string, counts *counts) ended {
	defer func() { _ = answer.Body.Close() }()
	w.Header().Set("Content-Length", strconv.FormatInt(answer.ContentLength, 10))
	w.Header().Set("Content-Type", "application/octet-stream")
	w.WriteHeader(http.StatusOK)
	sum, buffer, held := sha256.New(), make([]byte, 256<<10), make([]byte, 0, 256<<10)
	var done int64
	for {
		n, err := io.ReadFull(answer.Body, buffer)
		counts.received.Add(float64(n))
		done += int64(n)
		sum.Write(buffer[:n])
		last := err != nil
		if last && !(done == answer.ContentLength && "sha256:"+hex.EncodeToString(sum.Sum(nil)) == digest) {
			return broken
		}
		if _, failed := w.Write(held); failed != nil {
			return unwanted
		}
		held = append(held[:0], buffer[:n]...)
		if last {
			if _, failed := w.Write(held); failed != nil {
				return unwanted
			}
			return whole
		}
	}
}
