package peers

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"rollbox.dev/node/doubles/mtlstest"
)

const (
	name  = "peers.test"
	token = "a-token-of-this-test"
)

// peer is a process on a node, whose containerd the test plays.
type peer struct {
	self, own, content string
}

// authority signs the certificates of one test.
func nodes(t *testing.T, authority *mtlstest.Authority, count int) []*peer {
	t.Helper()
	return nodesAt(t, authority, count, "127.0.0.1")
}

func nodesAt(t *testing.T, authority *mtlstest.Authority, count int, address string) []*peer {
	t.Helper()
	made, listeners, addresses := []*peer{}, [][2]net.Listener{}, []string{}
	folder := t.TempDir()
	authority.Write(t, folder, name)
	for range count {
		pair := [2]net.Listener{listen(t, address), listen(t, "127.0.0.1")}
		listeners, addresses = append(listeners, pair), append(addresses, pair[0].Addr().String())
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	t.Cleanup(func() { cancel(); running.Wait() })
	for i := range count {
		one := &peer{addresses[i], listeners[i][1].Addr().String(), t.TempDir()}
		settings := &Settings{
			Self: one.self, Members: strings.Join(addresses, ","), Token: token, TLS: folder, Name: name,
			Content: one.content, Without: []string{"registry.test/estargz/"}, Sends: 8,
		}
		running.Go(func() {
			if err := Serve(ctx, settings, listeners[i][0], listeners[i][1], slog.New(slog.DiscardHandler)); err != nil {
				t.Error(err)
			}
		})
		made = append(made, one)
	}
	return made
}

func listen(t *testing.T, address string) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
	if err != nil {
		t.Fatal(err)
	}
	return listener
}

func (p *peer) put(t *testing.T, digest string, content []byte) {
	t.Helper()
	path := store{p.content}.path(digest)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	// As containerd does: it is there once it is whole.
	if err := os.WriteFile(path+".part", content, 0o444); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".part", path); err != nil {
		t.Fatal(err)
	}
}

// get asks as containerd does.
func (p *peer) get(t *testing.T, path, shown string, headers ...string) (int, []byte, error) {
	t.Helper()
	request, err := http.NewRequest(http.MethodGet, "http://"+p.own+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set(TokenHeader, shown)
	for i := 0; i+1 < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	// A client that keeps connections repeats a request on its own when one breaks.
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	return answer.StatusCode, body, err
}

func blobPath(digest string) string { return "/v2/team/app/blobs/" + digest + "?ns=registry.test" }

func layer(t *testing.T, size int) (string, []byte) {
	t.Helper()
	content := make([]byte, size)
	_, _ = rand.Read(content)
	sum := sha256.Sum256(content)
	return "sha256:" + hex.EncodeToString(sum[:]), content
}

// until asks again and again: what a node has is said behind an answer.
func until(t *testing.T, what string, so func() bool) {
	t.Helper()
	for range 400 {
		if so() {
			return
		}
		time.Sleep(25 * time.Millisecond)
	}
	t.Fatal("never: " + what)
}

func TestALayerThatOneNodeHasComesFromItToTheOthers(t *testing.T) {
	for _, address := range []string{"127.0.0.1", "::1"} {
		t.Run(address, func(t *testing.T) { comesToTheOthers(t, nodesAt(t, mtlstest.NewAuthority(t), 3, address)) })
	}
}

func comesToTheOthers(t *testing.T, all []*peer) {
	t.Helper()
	digest, content := layer(t, 3<<20+17)
	// Nobody has it: containerd is sent to the registry, and what it has put down is told.
	if status, _, _ := all[0].get(t, blobPath(digest), token); status != http.StatusNotFound {
		t.Fatal(status)
	}
	all[0].put(t, digest, content)
	for _, one := range all[1:] {
		until(t, "the layer comes from a node", func() bool {
			status, body, err := one.get(t, blobPath(digest), token)
			return status == http.StatusOK && err == nil && bytes.Equal(body, content)
		})
		one.put(t, digest, content)
	}
}

func TestWhatANodeHasWhenItStartsIsTold(t *testing.T) {
	authority := mtlstest.NewAuthority(t)
	digest, content := layer(t, 100)
	folder := t.TempDir()
	authority.Write(t, folder, name)
	has := &peer{content: t.TempDir()}
	has.put(t, digest, content)
	finding := &fetcher{self: "a", store: store{has.content}, tracker: newTracker(time.Now), members: newMembers("a", named("a")), ctx: context.Background(), told: map[string]string{}}
	if err := finding.announce(false); err != nil {
		t.Fatal(err)
	}
	if found, _ := finding.tracker.grant(digest, "b", false, fromRegistry); found == nil || found.From != "a" {
		t.Errorf("%v", found)
	}
}

func TestOnlyLayersAreGivenAndOnlyToContainerd(t *testing.T) {
	one := nodes(t, mtlstest.NewAuthority(t), 1)[0]
	digest, content := layer(t, 100)
	one.put(t, digest, content)
	for _, c := range []struct {
		what, path, token string
		status            int
	}{
		{"no token", blobPath(digest), "", http.StatusForbidden},
		{"another token", blobPath(digest), token + "x", http.StatusForbidden},
		{"a manifest", "/v2/team/app/manifests/" + digest + "?ns=registry.test", token, http.StatusNotFound},
		{"the API's root", "/v2/", token, http.StatusNotFound},
		{"an image that is mounted lazily", "/v2/estargz/app/blobs/" + digest + "?ns=registry.test", token, http.StatusNotFound},
		{"no digest", "/v2/team/app/blobs/sha256:..%2f..%2fetc", token, http.StatusNotFound},
	} {
		if status, _, _ := one.get(t, c.path, c.token); status != c.status {
			t.Errorf("%s: %d", c.what, status)
		}
	}
	// A part of a layer cannot be compared with its digest.
	if status, _, _ := one.get(t, blobPath(digest), token, "Range", "bytes=7-"); status != http.StatusNotFound {
		t.Errorf("a part: %d", status)
	}
}

func TestOnlyNodesAreServed(t *testing.T) {
	authority := mtlstest.NewAuthority(t)
	one := nodes(t, authority, 1)[0]
	digest, content := layer(t, 100)
	one.put(t, digest, content)
	ask := func(pairs []tls.Certificate, path string) (int, error) {
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{
			Certificates: pairs, RootCAs: authority.Pool(), ServerName: name, NextProtos: []string{"http/1.1"},
		}}}
		answer, err := client.Get("https://" + one.self + path)
		if err != nil {
			return 0, err
		}
		defer func() { _ = answer.Body.Close() }()
		_, err = io.ReadAll(answer.Body)
		return answer.StatusCode, err
	}
	good := []tls.Certificate{authority.Pair(t, name)}
	if status, err := ask(good, "/blobs/"+digest); status != http.StatusOK || err != nil {
		t.Errorf("%d, %v", status, err)
	}
	for _, path := range []string{"/blobs/", "/blobs/sha256:" + strings.Repeat("g", 64), "/blobs/..%2f..%2f..%2fetc%2fpasswd", "/"} {
		if status, _ := ask(good, path); status != http.StatusNotFound && status != http.StatusMethodNotAllowed {
			t.Errorf("%s: %d", path, status)
		}
	}
	for what, pairs := range map[string][]tls.Certificate{
		"none":              nil,
		"of another name":   {authority.Pair(t, "control-plane.test")},
		"of another signer": {mtlstest.NewAuthority(t).Pair(t, name)},
		"expired":           {authority.Expired(t, name)},
	} {
		if status, err := ask(pairs, "/blobs/"+digest); err == nil {
			t.Errorf("certificate %s: %d", what, status)
		}
	}
}

func TestAStrangerIsNotBelievedToHaveAnything(t *testing.T) {
	authority := mtlstest.NewAuthority(t)
	one := nodes(t, authority, 1)[0]
	folder := t.TempDir()
	authority.Write(t, folder, name)
	caller, err := newCaller(folder, name)
	if err != nil {
		t.Fatal(err)
	}
	digest, _ := layer(t, 1)
	if err := caller.tell(context.Background(), one.self, "have", call{Node: "127.0.0.1:1", Digests: []string{digest}}); err == nil {
		t.Error("a node that is no member was believed")
	}
	for _, what := range []call{{Node: one.self, Digests: []string{"../../x"}}, {Node: one.self, Digests: make([]string, maxNamed+1)}} {
		if err := caller.tell(context.Background(), one.self, "have", what); err == nil {
			t.Errorf("%v was taken", what.Digests[:1])
		}
	}
	if _, err := caller.ask(context.Background(), one.self, digest, "127.0.0.1:1"); err == nil {
		t.Error("a node that is no member got a lease")
	}
}

func TestANodeThatSendsSomethingElseIsFoundOutAndLeft(t *testing.T) {
	all := nodes(t, mtlstest.NewAuthority(t), 2)
	for _, size := range []int{100, 1 << 20} {
		digest, content := layer(t, size)
		_, other := layer(t, size)
		if status, _, _ := all[0].get(t, blobPath(digest), token); status != http.StatusNotFound {
			t.Fatal(status)
		}
		all[0].put(t, digest, other)
		until(t, "the other one was asked", func() bool {
			status, body, err := all[1].get(t, blobPath(digest), token)
			if status == http.StatusOK && err == nil || bytes.Equal(body, content) {
				t.Fatalf("%d bytes passed for the layer", len(body))
			}
			return err != nil
		})
		// The registry has it.
		if status, _, _ := all[1].get(t, blobPath(digest), token); status != http.StatusNotFound {
			t.Errorf("%d", status)
		}
	}
}

func TestASettingThatIsMissingOrWrongIsNamed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	good := map[string]string{
		"SELF": "10.0.0.7:5447", "MEMBERS": "dns:peers.ns.svc:5447", "NAME": name, "TOKEN_FILE": file, "WITHOUT": "a/,b/",
	}
	read := func(change map[string]string) (*Settings, error) {
		return Read(func(key string) string {
			key = strings.TrimPrefix(key, prefix)
			if value, there := change[key]; there {
				return value
			}
			return good[key]
		})
	}
	s, err := read(nil)
	if err != nil || s.Token != token || len(s.Without) != 2 || s.Local != "127.0.0.1:5448" {
		t.Fatalf("%v, %v", s, err)
	}
	for host, want := range map[string]string{"10.0.0.7": "10.0.0.7:5447", "fd00:0::7": "[fd00::7]:5447"} {
		s, err := read(map[string]string{"HOST": host, "SELF": ":5447", "METRICS": ":5449"})
		if err != nil || s.Self != want || s.Metrics != strings.Replace(want, "5447", "5449", 1) {
			t.Errorf("%s: %+v, %v", host, s, err)
		}
	}
	if _, err := read(map[string]string{"HOST": "node", "SELF": ":5447"}); err == nil {
		t.Error("a node has no address")
	}
	for variable, value := range map[string]string{
		"SELF": "node:1", "MEMBERS": "10.0.0.1", "LOCAL": "0.0.0.0:5448", "TLS": "x", "NAME": "", "CONTENT": "x", "SENDS": "0",
		"TOKEN_FILE": "/none", "METRICS": "x", "LOG": "loud",
	} {
		_, err := read(map[string]string{variable: value})
		var bad *SettingError
		if bad, _ = err.(*SettingError); bad == nil || bad.Variable != prefix+variable || !strings.Contains(err.Error(), variable) {
			t.Errorf("%s: %v", variable, err)
		}
	}
}

func TestAllNodesAgreeOnTrackersAndEachIsOne(t *testing.T) {
	addresses := strings.Split("10.0.0.1:1,10.0.0.2:1,10.0.0.3:1,10.0.0.4:1,10.0.0.5:1", ",")
	counts := map[string]int{}
	for number := range 1000 {
		sum := sha256.Sum256([]byte{byte(number), byte(number >> 8)})
		digest := "sha256:" + hex.EncodeToString(sum[:])
		var agreed string
		for _, self := range addresses {
			known := newMembers(self, named(strings.Join(addresses, ",")))
			if _, err := known.look(context.Background()); err != nil {
				t.Fatal(err)
			}
			found := strings.Join(known.trackers(digest), " ")
			if agreed != "" && agreed != found {
				t.Fatalf("%s, %s", agreed, found)
			}
			agreed = found
		}
		counts[strings.Fields(agreed)[0]]++
		if len(strings.Fields(agreed)) != 2 {
			t.Fatal(agreed)
		}
	}
	for node, count := range counts {
		if count < 140 || count > 260 {
			t.Errorf("%s is the tracker of %d of 1000", node, count)
		}
	}
}
