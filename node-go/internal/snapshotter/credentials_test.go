package snapshotter

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/pkg/reference"
	"github.com/containerd/stargz-snapshotter/cache"
	"github.com/containerd/stargz-snapshotter/fs/config"
	"github.com/containerd/stargz-snapshotter/fs/remote"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// guarded is a registry with one blob and one account.
type guarded struct{ account string }

const blob = "a layer"

func (g *guarded) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	user, password, _ := r.BasicAuth()
	if user+":"+password != g.account {
		w.Header().Set("WWW-Authenticate", `Basic realm="r"`)
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	http.ServeContent(w, r, "", time.Time{}, strings.NewReader(blob))
}

// world is such a registry, and a folder in which a node is told of it.
func world(t *testing.T) (registry *guarded, folder string, blobOf func() error) {
	t.Helper()
	registry = &guarded{"pull:first"}
	serving := httptest.NewServer(registry)
	t.Cleanup(serving.Close)
	root := t.TempDir()
	folder = filepath.Join(root, "registry.example.com:5000")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	hosts := "server = \"" + serving.URL + "\"\n\n[host.\"" + serving.URL + "\"]\n  capabilities = [\"pull\"]\n"
	if err := os.WriteFile(filepath.Join(folder, "hosts.toml"), []byte(hosts), 0o600); err != nil {
		t.Fatal(err)
	}
	ref, err := reference.Parse("registry.example.com:5000/estargz/app@" + digest.FromString("image").String())
	if err != nil {
		t.Fatal(err)
	}
	layer := ocispec.Descriptor{Digest: digest.FromString(blob), Size: int64(len(blob))}
	return registry, folder, func() error {
		asked := remote.NewResolver(config.BlobConfig{MaxRetries: 1, MinWaitMSec: 1, MaxWaitMSec: 1}, nil)
		_, err := asked.Resolve(context.Background(), registryHosts(root), ref, layer, cache.NewMemoryCache())
		return err
	}
}

func write(t *testing.T, folder, account string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(folder, credentialsFile), []byte(account), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestCredentialsAreReadWheneverTheRegistryAsks(t *testing.T) {
	registry, folder, blobOf := world(t)
	if err := blobOf(); err == nil || !refused(err) {
		t.Fatalf("without credentials: %v", err)
	}
	write(t, folder, "pull:first\n")
	if err := blobOf(); err != nil {
		t.Fatal(err)
	}
	registry.account = "pull:second"
	if err := blobOf(); err == nil || !refused(err) {
		t.Fatalf("with credentials that have expired: %v", err)
	}
	write(t, folder, "pull:second")
	if err := blobOf(); err != nil {
		t.Fatal(err)
	}
	write(t, folder, "no password")
	if err := blobOf(); err == nil {
		t.Fatal("a file without a password was taken")
	}
}

func TestWhoeverARegistrySendsOnToGetsNoCredentials(t *testing.T) {
	folder := t.TempDir()
	of := filepath.Join(folder, "registry.example.com")
	if err := os.Mkdir(of, 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, of, "pull:secret")
	for host, want := range map[string]string{"10.0.0.1:5443": "secret", "storage.example.com": ""} {
		_, password, err := credentials(folder, "registry.example.com", "10.0.0.1:5443")(host)
		if err != nil || password != want {
			t.Errorf("%s: %q, %v", host, password, err)
		}
	}
	if _, password, err := credentials(folder, "other.example.com", "10.0.0.1:5443")("10.0.0.1:5443"); err != nil || password != "" {
		t.Error(password, err)
	}
}
