package peers

import (
	"context"
	"encoding/json"
	"net/http"
	"time"
)

// How long a transfer waits for its place: a moment less than its receiver does.
const placeFor = answerFor * 3 / 4

// server answers the other nodes.
type server struct {
	store   store
	tracker *tracker
	members *members
	counts  *counts
	// Transfers that this node sends at the same time, of all layers.
	places chan struct{}
}

func (s *server) routes() http.Handler {
	routes := http.NewServeMux()
	routes.HandleFunc("GET /blobs/{digest}", s.blob)
	routes.HandleFunc("POST /{verb}", s.told)
	return routes
}

func (s *server) blob(w http.ResponseWriter, r *http.Request) {
	waiting, cancel := context.WithTimeout(r.Context(), placeFor)
	defer cancel()
	select {
	case s.places <- struct{}{}:
		defer func() { <-s.places }()
	case <-waiting.Done():
		http.Error(w, "this node sends as much as it may", http.StatusServiceUnavailable)
		return
	}
	file, _, err := s.store.open(r.PathValue("digest"))
	if err != nil {
		http.NotFound(w, r)
		return
	}
	defer func() { _ = file.Close() }()
	w.Header().Set("Content-Type", "application/octet-stream")
	counted := &countedWriter{ResponseWriter: w}
	http.ServeContent(counted, r, "", time.Time{}, file)
	s.counts.sent.Add(float64(counted.bytes))
}

// told takes what nodes say to this one as a tracker.
func (s *server) told(w http.ResponseWriter, r *http.Request) {
	var what call
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxCallBytes)).Decode(&what); err != nil {
		http.Error(w, "no call", http.StatusBadRequest)
		return
	}
	verb := r.PathValue("verb")
	// Only members are believed to have anything: what is said here is where others fetch from.
	known := s.members.knows(what.Node)
	switch {
	case verb == "ask" && known && digestForm.MatchString(what.Digest):
		ctx, cancel := context.WithTimeout(r.Context(), waitFor)
		defer cancel()
		found := s.tracker.ask(ctx, what.Digest, what.Node)
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(found)
	case verb == "have" && known && len(what.Digests) <= maxNamed && allDigests(what.Digests):
		s.tracker.have(what.Node, what.Digests)
	case verb == "renew":
		s.tracker.renew(what.Digest, what.Lease)
	case verb == "done":
		s.tracker.done(what.Digest, what.Lease, what.Gone)
	default:
		http.Error(w, "no such call, or not from a member", http.StatusBadRequest)
	}
}

func allDigests(digests []string) bool {
	for _, one := range digests {
		if !digestForm.MatchString(one) {
			return false
		}
	}
	return true
}

type countedWriter struct {
	http.ResponseWriter
	bytes int64
}

func (c *countedWriter) Write(part []byte) (int, error) {
	n, err := c.ResponseWriter.Write(part)
	c.bytes += int64(n)
	return n, err
}
