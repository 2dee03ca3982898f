package builder

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// carried has every connection of a builder's own carried to an address, as the control plane does.
func carried(t *testing.T, to string) *outside {
	t.Helper()
	made := newOutside()
	go func() {
		for {
			select {
			case <-t.Context().Done():
				return
			case one := <-made.waiting:
				go func() {
					defer func() { _ = one.Close() }()
					if on, err := net.Dial("tcp", to); err == nil {
						defer func() { _ = on.Close() }()
						carry(one, on, on)
					}
				}()
			}
		}
	}()
	return made
}

// proxying is a relay that allows one host, which it answers for itself.
func proxying(t *testing.T) string {
	t.Helper()
	relay := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodConnect && r.Host == "full.test:443":
			w.WriteHeader(http.StatusServiceUnavailable)
		case r.Method == http.MethodConnect || r.URL.Host != "index.test":
			w.WriteHeader(http.StatusForbidden)
		case r.URL.Path == "/moved":
			http.Redirect(w, r, "http://index.test/hello", http.StatusFound)
		case r.URL.Path == "/around":
			http.Redirect(w, r, "http://index.test/around", http.StatusFound)
		case r.URL.Path == "/hello":
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = io.WriteString(w, "hello")
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(relay.Close)
	return relay.Listener.Addr().String()
}

func TestWhatIsFetchedComesByTheRelayAsItWasSent(t *testing.T) {
	client, folder := carried(t, proxying(t)).client(), filepath.Join(t.TempDir(), "files")
	sum := digest("hello")
	wanted := []Fetched{{Path: "0/hello", Address: "http://index.test/hello", Checksum: sum}, {Path: "1/moved", Address: "http://index.test/moved"}}
	if err := fetchAll(t.Context(), client, folder, wanted); err != nil {
		t.Fatal(err)
	}
	for _, one := range wanted {
		path := filepath.Join(folder, one.Path)
		text, err := os.ReadFile(path)
		if err != nil || string(text) != "hello" {
			t.Errorf("%s: %q %v", one.Path, text, err)
		}
		if seen, err := os.Stat(path); err != nil || seen.Mode() != 0o644 || !seen.ModTime().Equal(fetchedAt) {
			t.Errorf("%v %v", seen, err)
		}
	}
}

func TestWhyNothingIsFetched(t *testing.T) {
	client := carried(t, proxying(t)).client()
	for _, one := range []struct{ address, checksum, reason, why string }{
		{"http://other.test/hello", "", byAddress, "the answer is 403 Forbidden"},
		{"https://index.test/hello", "", byAddress, "the answer is 403 Forbidden"},
		{"https://full.test/hello", "", byEgress, "503"},
		{"http://index.test/nosuch", "", byAddress, "the answer is 404 Not Found"},
		{"http://index.test/around", "", byAddress, "10 redirects"},
		{"http://index.test/hello", "sha512:" + strings.Repeat("0", 128), byAddress, "it has the checksum sha512:9b71d224bd62"},
	} {
		wanted := []Fetched{{Path: "0/x", Address: one.address, Checksum: one.checksum, Line: 3}}
		err := fetchAll(t.Context(), client, t.TempDir(), wanted)
		var because *failure
		if !errors.As(err, &because) || because.reason != one.reason || because.line != 3 || !strings.Contains(because.why, one.why) {
			t.Errorf("%s: %v", one.address, err)
		}
		if !strings.HasPrefix(fmt.Sprint(err), "Dockerfile, line 3, ADD of "+one.address+": ") {
			t.Errorf("%v", err)
		}
	}
}

func TestMoreThanABuildMayFetchIsRefused(t *testing.T) {
	client := carried(t, proxying(t)).client()
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = root.Close() }()
	one := Fetched{Path: "x", Address: "http://index.test/hello"}
	if length, err := one.fetch(t.Context(), client, root, 5); err != nil || length != 5 {
		t.Errorf("%d %v", length, err)
	}
	_, err = one.fetch(t.Context(), client, root, 4)
	var because *failure
	if !errors.As(one.judged(err), &because) || because.reason != bySize {
		t.Error(err)
	}
}
