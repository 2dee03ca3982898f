package builder

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Line is one of the answer to a build; the last one has either an image, or why there is none.
type Line struct {
	Text   string            `json:"text,omitempty"`
	Image  *ocispec.Manifest `json:"image,omitempty"`
	Reason string            `json:"reason,omitempty"`
	Why    string            `json:"why,omitempty"`
	// Line is that of the Dockerfile, of a failure that has one.
	Line int `json:"line,omitempty"`
}

// Server takes what a build reads, builds, and gives what it has made. One build at a time.
type Server struct {
	settings Settings
	client   []string
	outside  *outside
	tidy     func() error
	building sync.Mutex
	// Of the build, from 1.
	number int
	// What a build has left does not end: no other one may be here.
	spoilt atomic.Bool
	// When the last request ended (Unix ns), and how many are under way.
	last  atomic.Int64
	under atomic.Int64
}

// NewServer returns a server; client is the command of BuildKit's client, with its address, and tidy ends what the steps of a
// build have left.
func NewServer(settings Settings, client []string, tidy func() error) *Server {
	server := &Server{settings: settings, client: client, outside: newOutside(), tidy: tidy}
	server.last.Store(time.Now().UnixNano())
	return server
}

// Idle returns whether nobody has asked for anything for so long that nobody will.
func (s *Server) Idle() bool {
	return s.under.Load() == 0 && time.Since(time.Unix(0, s.last.Load())) > s.settings.Idle
}

// Relay hands what steps connect to over to the control plane, until the listener is closed.
func (s *Server) Relay(ctx context.Context, listener net.Listener) error {
	return s.outside.serve(ctx, listener)
}

// Handler returns what answers requests.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /ready", s.ready)
	mux.HandleFunc("PUT /blobs/{digest}", s.take)
	mux.HandleFunc("GET /blobs/{digest}", s.give)
	mux.HandleFunc("POST /build", s.build)
	mux.HandleFunc("POST /connections", s.outside.give)
	mux.HandleFunc("GET /program", program)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if subtle.ConstantTimeCompare([]byte(r.Header.Get("Authorization")), []byte("Bearer "+s.settings.Token)) != 1 {
			http.Error(w, "not the token of this builder", http.StatusUnauthorized)
			return
		}
		s.under.Add(1)
		defer func() {
			s.last.Store(time.Now().UnixNano())
			s.under.Add(-1)
		}()
		mux.ServeHTTP(w, r)
	})
}

func (s *Server) bases() layout { return layout(filepath.Join(s.settings.State, "rollbox", "bases")) }
func (s *Server) made() layout  { return layout(filepath.Join(s.settings.State, "rollbox", "made")) }

// ready answers whether a build may begin: nothing of an earlier one runs, which it waits for, and half of the room is free.
func (s *Server) ready(w http.ResponseWriter, _ *http.Request) {
	s.building.Lock()
	defer s.building.Unlock()
	if s.spoilt.Load() || over(s.settings.State, s.settings.MostBytes/2) {
		http.Error(w, "it has built enough", http.StatusServiceUnavailable)
	}
}

func (s *Server) take(w http.ResponseWriter, r *http.Request) {
	digest := r.PathValue("digest")
	if !digestForm.MatchString(digest) {
		http.Error(w, "no digest", http.StatusBadRequest)
		return
	}
	if err := s.bases().put(digest, r.Body); err != nil {
		status := http.StatusBadRequest
		if full(err) {
			status = http.StatusInsufficientStorage
		}
		http.Error(w, err.Error(), status)
		return
	}
	w.WriteHeader(http.StatusCreated)
}

func (s *Server) give(w http.ResponseWriter, r *http.Request) {
	digest := r.PathValue("digest")
	if !digestForm.MatchString(digest) {
		http.Error(w, "no digest", http.StatusBadRequest)
		return
	}
	http.ServeFile(w, r, s.made().path(digest))
}

// program answers with this program, which `Forward` is a part of.
func program(w http.ResponseWriter, r *http.Request) {
	at, err := os.Executable()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	http.ServeFile(w, r, at)
}

func (s *Server) build(w http.ResponseWriter, r *http.Request) {
	if !s.building.TryLock() {
		http.Error(w, "it builds already", http.StatusConflict)
		return
	}
	defer s.building.Unlock()
	defer func() {
		if err := s.tidy(); err != nil {
			s.spoilt.Store(true)
		}
	}()
	answer, flush := json.NewEncoder(w), http.NewResponseController(w)
	told := func(line Line) {
		if answer.Encode(line) == nil {
			_ = flush.Flush()
		}
	}
	image, err := s.built(r.Context(), r.Header.Get("Rollbox-Mark"), r.Body, func(text string) { told(Line{Text: text}) })
	var because *failure
	switch {
	case err == nil:
		told(Line{Image: &image})
	case errors.As(err, &because):
		told(Line{Reason: because.reason, Why: because.why, Line: because.line})
	case full(err):
		told(Line{Reason: byRoom, Why: err.Error()})
	default:
		told(Line{Reason: byBuilder, Why: err.Error()})
	}
}

// built reads an archive of a build's files, with those that are no context in the folder `mark`, and builds.
func (s *Server) built(ctx context.Context, mark string, archive io.Reader, tell func(string)) (ocispec.Manifest, error) {
	var none ocispec.Manifest
	folder, err := os.MkdirTemp(filepath.Join(s.settings.State, "rollbox"), "build-")
	if err != nil {
		return none, err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	at := places{filepath.Join(folder, "context"), filepath.Join(folder, "beside"), string(s.bases()), string(s.made())}
	s.number++
	if err := unpacked(archive, mark, s.number, at); err != nil {
		return none, err
	}
	var wish Wish
	if err := read(filepath.Join(at.beside, "wish.json"), &wish); err != nil {
		return none, fmt.Errorf("the wish of the build: %w", err)
	}
	if err := s.made().begin(s.bases()); err != nil {
		return none, err
	}
	if err := fetchAll(ctx, s.outside.client(), at.files(), wish.Fetched); err != nil {
		return none, err
	}
	over := func() bool { return over(s.settings.State, s.settings.MostBytes) }
	if err := solve(ctx, s.client, wish.words(at), over, tell); err != nil {
		return none, err
	}
	return s.made().made()
}

func unpacked(archive io.Reader, mark string, number int, at places) error {
	if mark == "" {
		return errors.New("the request has no mark")
	}
	var roots []*os.Root
	for _, folder := range []string{at.beside, at.context, filepath.Join(at.bases, blobs)} {
		if err := os.MkdirAll(folder, 0o700); err != nil {
			return err
		}
		root, err := os.OpenRoot(folder)
		if err != nil {
			return err
		}
		defer func() { _ = root.Close() }()
		roots = append(roots, root)
	}
	if err := unpack(archive, mark, number, roots[0], roots[1]); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, archive); err != nil {
		return err
	}
	// The caller has applied the context's own list of what is left out; without this one BuildKit would once more.
	return os.WriteFile(filepath.Join(at.beside, "Dockerfile.dockerignore"), []byte("#\n"), 0o600)
}
