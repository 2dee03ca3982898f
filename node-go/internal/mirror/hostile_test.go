package mirror

import (
	"io"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"rollbox.dev/node/internal/wire"
)

// answering answers requests whose path has the part.
func answering(part string, status int, headers ...string) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.Contains(r.URL.Path, part) {
			return false
		}
		for n := 0; n < len(headers); n += 2 {
			w.Header().Set(headers[n], headers[n+1])
		}
		w.WriteHeader(status)
		return true
	}
}

func sending(part, content string, length string) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.Contains(r.URL.Path, part) || r.Method != http.MethodGet {
			return false
		}
		w.Header().Set("Content-Length", length)
		_, _ = w.Write([]byte(content))
		return true
	}
}

func TestWhatAnUpstreamRegistryDoesHasItsCode(t *testing.T) {
	source := image(t, "content")
	layer := layerOf(t, source, 0)
	for title, test := range map[string]struct {
		meddle   func(http.ResponseWriter, *http.Request) bool
		expected string
	}{
		"no manifest":       {answering("/manifests/", 404), "image_not_found upstream absent"},
		"no layer":          {answering(layer, 404), "image_not_found upstream absent"},
		"denied":            {answering("/manifests/", 403), "image_not_found upstream denied"},
		"expired":           {answering("/v2/", 401, "WWW-Authenticate", `Basic realm="r"`), "image_not_found upstream denied"},
		"tokens refused":    {answering("/v2/", 401, "WWW-Authenticate", `Bearer realm="http://169.254.169.254/t"`), "image_pull_failed upstream broken"},
		"limited for long":  {answering(layer, 429, "Retry-After", "86400"), "image_pull_failed upstream limited"},
		"out of order":      {answering(layer, 500), "image_pull_failed upstream away"},
		"other manifest":    {sending("/manifests/", `{"schemaVersion": 2}`, "20"), "image_pull_failed upstream broken"},
		"other layer":       {sending(layer, "CONTENT", "7"), "image_pull_failed upstream broken"},
		"truncated":         {sending(layer, "con", "7"), "image_pull_failed upstream broken"},
		"shorter":           {sending(layer, "con", "3"), "image_pull_failed upstream broken"},
		"longer":            {sending(layer, "content and more", "16"), "image_pull_failed upstream broken"},
		"metadata service":  {answering(layer, 307, "Location", "http://169.254.169.254/latest"), "image_pull_failed upstream away"},
		"loopback by https": {answering(layer, 307, "Location", "https://[::1]:1/"), "image_pull_failed upstream away"},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			upstream, private := serve(t), serve(t)
			asked := wish(upstream.push(t, "team/app", source))
			asked.Upstream = &wire.UpstreamCredentials{Username: "user", Password: "expired"}
			upstream.interfere(test.meddle)
			if got := refused(t, copierFor(t, upstream, private, 5*time.Second), asked); told(got) != test.expected {
				t.Fatalf("%s, want %s: %s", told(got), test.expected, got.Detail)
			}
			if private.count("PUT", "/manifests/") != 0 {
				t.Fatal("something was offered")
			}
		})
	}
}

func TestASlowRegistryIsGivenUpAndAPatientOneIsNot(t *testing.T) {
	source := image(t, "content")
	layer := layerOf(t, source, 0)
	slowly := func(pause time.Duration) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.Contains(r.URL.Path, layer) || r.Method != http.MethodGet {
				return false
			}
			w.Header().Set("Content-Length", "7")
			for _, letter := range "content" {
				_, _ = w.Write([]byte(string(letter)))
				w.(http.Flusher).Flush()
				select {
				case <-time.After(pause):
				case <-r.Context().Done():
				}
			}
			return true
		}
	}
	upstream, private := serve(t), serve(t)
	at := upstream.push(t, "team/app", source)
	upstream.interfere(slowly(time.Minute))
	got := refused(t, copierFor(t, upstream, private, 300*time.Millisecond), wish(at))
	if told(got) != "image_pull_failed upstream away" || !strings.Contains(got.Detail, "stopped sending") {
		t.Fatal(got)
	}
	upstream.interfere(slowly(20 * time.Millisecond))
	copied(t, copierFor(t, upstream, private, 30*time.Second), wish(at))
}

func TestALimitIsWaitedForAndTold(t *testing.T) {
	upstream, private := serve(t), serve(t)
	source := image(t, "content")
	layer := layerOf(t, source, 0)
	at := upstream.push(t, "team/app", source)
	left := 2
	upstream.interfere(func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.Contains(r.URL.Path, layer) || left == 0 {
			return false
		}
		left--
		w.Header().Set("Retry-After", "1")
		w.WriteHeader([]int{http.StatusTooManyRequests, http.StatusServiceUnavailable}[left])
		return true
	})
	paused := false
	_, err := copierFor(t, upstream, private, time.Minute).Copy(t.Context(), wish(at), func(now *wire.CopyProgress) error {
		paused = paused || (now.Phase == wire.CopyProgress_PAUSED && now.PauseMs > 0)
		return nil
	})
	if err != nil || !paused || left != 0 {
		t.Fatal(err, paused, left)
	}
}

func TestThePrivateRegistryIsNamedWhereItFails(t *testing.T) {
	source := image(t, "content")
	for title, test := range map[string]struct {
		meddle   func(http.ResponseWriter, *http.Request) bool
		expected string
	}{
		"down":         {answering("/v2/", 502), "image_pull_failed registry away"},
		"full":         {answering("/uploads/", 507), "image_store_full registry full"},
		"no space":     {saying("/uploads/", 500, `{"errors":[{"code":"UNKNOWN","detail":{"Enclosed":{"Err":28}},"message":"no space left on device"}]}`), "image_store_full registry full"},
		"no account":   {answering("/v2/", 401, "WWW-Authenticate", `Basic realm="r"`), "image_pull_failed registry denied"},
		"no manifests": {answering("/manifests/copy-", 500), "image_pull_failed registry away"},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			upstream, private := serve(t), serve(t)
			at := upstream.push(t, "team/app", source)
			private.interfere(test.meddle)
			if got := refused(t, copierFor(t, upstream, private, time.Minute), wish(at)); told(got) != test.expected {
				t.Fatalf("%s, want %s: %s", told(got), test.expected, got.Detail)
			}
		})
	}
}

func saying(part string, status int, body string) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.Contains(r.URL.Path, part) {
			return false
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
		return true
	}
}

func TestIntoARegistryWithoutRoomNothingIsSent(t *testing.T) {
	upstream, private := serve(t), serve(t)
	there, other := upstream.push(t, "team/app", image(t, "one")), upstream.push(t, "team/app", image(t, "two"))
	copier := copierFor(t, upstream, private, time.Minute)
	copied(t, copier, wish(there))
	private.forget()
	again, asked := wish(there), wish(other)
	again.NoRoom, asked.NoRoom = true, true
	if !copied(t, copier, again).There {
		t.Error("it was there")
	}
	if got := refused(t, copier, asked); told(got) != "image_store_full registry full" {
		t.Error(got)
	}
	if private.count("POST", "")+private.count("PUT", "") > 0 {
		t.Error(private.asked)
	}
}

// A collection takes what no image has, and so what another copy has left and this one has found.
func TestWhatIsCollectedWhileItIsCopiedIsSentAgain(t *testing.T) {
	upstream, private := serve(t), serve(t)
	at := upstream.push(t, "team/app", image(t, "one"))
	refusals := 2
	private.interfere(func(w http.ResponseWriter, r *http.Request) bool {
		if refusals == 0 || r.Method != http.MethodPut || !strings.Contains(r.URL.Path, "/manifests/copy-") {
			return false
		}
		refusals--
		private.empty()
		w.WriteHeader(http.StatusBadRequest)
		_, _ = w.Write([]byte(`{"errors":[{"code":"MANIFEST_BLOB_UNKNOWN","message":"blob unknown to registry"}]}`))
		return true
	})
	result := copied(t, copierFor(t, upstream, private, time.Minute), wish(at))
	pulled, err := name.NewDigest(private.host + "/mirror/app@" + result.Digest)
	if err != nil {
		t.Fatal(err)
	}
	found, err := remote.Image(pulled)
	if err != nil {
		t.Fatal(err)
	}
	layers, err := found.Layers()
	if err != nil || len(layers) != 1 || refusals != 0 {
		t.Fatal(layers, err, refusals)
	}
	if content, err := layers[0].Compressed(); err != nil {
		t.Error(err)
	} else if text, err := io.ReadAll(content); err != nil || string(text) != "one" {
		t.Error(text, err)
	}
}

func TestOnlyPublicAddressesAreAsked(t *testing.T) {
	guard := NewGuard([]string{"localhost:5000", "10.0.0.1"})
	for address, expected := range map[string]bool{
		"192.0.2.1": true, "10.1.2.3": true, "2001:db8::1": true,
		"127.0.0.1": false, "::1": false, "::ffff:127.0.0.1": false, "0.0.0.0": false, "::": false,
		"169.254.169.254": false, "fe80::1": false, "224.0.0.1": false, "fd00:ec2::254": false,
		"100.100.100.200": false, "168.63.129.16": false, "::ffff:169.254.169.254": false,
	} {
		if got := guard.Allowed(netip.MustParseAddr(address), "registry.example.com"); got != expected {
			t.Errorf("%s: %v", address, got)
		}
	}
	if !guard.Allowed(netip.MustParseAddr("127.0.0.1"), "localhost") {
		t.Error("what the operator names is asked")
	}
	upstream, private := serve(t), serve(t)
	at := upstream.push(t, "team/app", image(t, "one"))
	copier := copierFor(t, upstream, private, time.Minute)
	copier.Upstream = NewGuard(nil).Transport(time.Minute)
	if got := told(refused(t, copier, wish(at))); got != "image_pull_failed upstream away" {
		t.Fatal(got)
	}
}

func TestARegistryIsAskedByHTTPOnlyWhereTheOperatorSaysSo(t *testing.T) {
	// No address that the library would ask by http without being told to.
	upstream, private := serveAt(t, "127.0.0.2:0"), serve(t)
	at := upstream.push(t, "team/app", image(t, "one"))
	copier := copierFor(t, upstream, private, time.Minute)
	copier.PlainRegistries = nil
	copier.Upstream = NewRetryAfter(NewGuard(nil).Transport(time.Minute))
	if got := told(refused(t, copier, wish(at))); got != "image_pull_failed upstream away" {
		t.Fatal(got)
	}
	copied(t, copierFor(t, upstream, private, time.Minute), wish(at))
}

func TestAMalformedRequestIsRefused(t *testing.T) {
	upstream, private := serve(t), serve(t)
	copier := copierFor(t, upstream, private, time.Minute)
	digest := "@sha256:" + strings.Repeat("0", 64)
	for title, change := range map[string]func(*wire.CopyRequest){
		"tag":            func(r *wire.CopyRequest) { r.Source = "registry.example.com/a:1" },
		"no source":      func(r *wire.CopyRequest) { r.Source = "" },
		"target":         func(r *wire.CopyRequest) { r.Target = "../x" },
		"target's tag":   func(r *wire.CopyRequest) { r.Target = "a:1" },
		"host as target": func(r *wire.CopyRequest) { r.Target = "" },
		"architectures":  func(r *wire.CopyRequest) { r.Architectures = nil },
		"architecture":   func(r *wire.CopyRequest) { r.Architectures = []string{"a/b"} },
		"form":           func(r *wire.CopyRequest) { r.Form = 7 },
		"user's tag":     func(r *wire.CopyRequest) { r.Tag = "a/b" },
		// Nodes would believe what a user's image says of its layers.
		"what is not converted among what is": func(r *wire.CopyRequest) { r.Target = "estargz/a" },
	} {
		asked := wish("registry.example.com/a" + digest)
		change(asked)
		if got := refused(t, copier, asked); got.Code != "invalid_argument" {
			t.Errorf("%s: %v", title, got)
		}
	}
	asked := lazyWish("registry.example.com/a" + digest)
	if got := refused(t, copier, asked); got.Code != "unsupported" {
		t.Error(got)
	}
	copier.Forms = map[wire.ImageForm]Converter{wire.ImageForm_ESTARGZ: ESTARGZ(1<<30, 1<<30)}
	for title, change := range map[string]func(*wire.CopyRequest){
		"what is converted elsewhere":     func(r *wire.CopyRequest) { r.Target = "mirror/a" },
		"through nothing":                 func(r *wire.CopyRequest) { r.Through = "" },
		"through what is to be converted": func(r *wire.CopyRequest) { r.Through = "estargz/b" },
		"through what is another's":       func(r *wire.CopyRequest) { r.Through = "commits/alice/b" },
	} {
		asked := lazyWish("registry.example.com/a" + digest)
		change(asked)
		if got := refused(t, copier, asked); got.Code != "invalid_argument" {
			t.Errorf("%s: %v", title, got)
		}
	}
}

func TestWhatCannotRunIsRefusedUnread(t *testing.T) {
	layer := `{"mediaType":"application/vnd.oci.image.layer.v1.tar","digest":"sha256:` + strings.Repeat("1", 64) + `","size":1}`
	config := `"config":{"mediaType":"application/vnd.oci.image.config.v1+json","digest":"sha256:` + strings.Repeat("2", 64) + `","size":1}`
	for title, text := range map[string]string{
		"no JSON":   "[",
		"schema 1":  `{"schemaVersion":1}`,
		"no layer":  `{"schemaVersion":2,` + config + `,"layers":[]}`,
		"too many":  `{"schemaVersion":2,` + config + `,"layers":[` + strings.Repeat(layer+",", 127) + layer + `]}`,
		"foreign":   `{"schemaVersion":2,` + config + `,"layers":[` + strings.Replace(layer, "oci.image.layer.v1.tar", "docker.image.rootfs.foreign.diff.tar.gzip", 1) + `]}`,
		"artifact":  `{"schemaVersion":2,"config":{"mediaType":"application/json","digest":"sha256:` + strings.Repeat("2", 64) + `","size":1},"layers":[` + layer + `]}`,
		"no digest": `{"schemaVersion":2,` + config + `,"layers":[{"mediaType":"application/vnd.oci.image.layer.v1.tar","size":1}]}`,
		"less":      `{"schemaVersion":2,` + config + `,"layers":[` + strings.Replace(layer, `"size":1`, `"size":-1`, 1) + `]}`,
	} {
		if _, err := read([]byte(text), "", nil); err == nil {
			t.Error(title)
		}
	}
	if _, err := read([]byte(`{"schemaVersion":2,`+config+`,"layers":[`+layer+`]}`), "", nil); err != nil {
		t.Error(err)
	}
}

func FuzzManifests(f *testing.F) {
	f.Add([]byte(`{"manifests":[{"platform":{"os":"linux","architecture":"amd64"},"digest":"sha256:00"}]}`))
	f.Add([]byte(`{"schemaVersion":2,"config":{},"layers":[{}]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if chosen, err := choose(raw, []string{"amd64", "arm64"}); err == nil && (len(chosen) < 1 || len(chosen) > 2) {
			t.Fatal(chosen)
		}
		one, err := read(raw, "", &v1.Platform{})
		if err == nil && (len(one.parts) < 2 || len(one.parts) > maxLayers+1) {
			t.Fatal(one.parts)
		}
	})
}
