package snapshotter

import (
	"context"
	"net/http"

	"github.com/containerd/containerd/v2/core/remotes/docker"
	"github.com/containerd/containerd/v2/pkg/reference"
	"github.com/containerd/stargz-snapshotter/fs/config"
	"github.com/containerd/stargz-snapshotter/fs/source"
	"github.com/containerd/stargz-snapshotter/service"
	"github.com/containerd/stargz-snapshotter/service/resolver"
	"github.com/hashicorp/go-retryablehttp"
)

const mebibyte = 1 << 20

// libraryConfig is what the library is told: everything is verified, and everything is fetched in the background.
func libraryConfig(s *Settings) service.Config {
	return service.Config{Config: config.Config{
		PrefetchTimeoutSec: 10,
		MaxConcurrency:     4,
		LogFileAccess:      s.Accesses != "",
		BlobConfig: config.BlobConfig{
			// Fewer, larger requests: with the library's 50 kB a registry some milliseconds away is what is measured.
			ChunkSize:         mebibyte / 4,
			PrefetchChunkSize: 4 * mebibyte,
			FetchTimeoutSec:   60,
			// A read of a sandbox waits for a registry that is away for about half a minute before it fails.
			MaxRetries:  8,
			MinWaitMSec: 100,
			MaxWaitMSec: 5000,
		},
		DirectoryCacheConfig: config.DirectoryCacheConfig{MaxLRUCacheEntry: 64, MaxCacheFds: 256, Direct: true},
		FuseConfig: config.FuseConfig{
			// What is in a layer never changes.
			AttrTimeout: 3600, EntryTimeout: 3600,
			// The kernel reads a file that was opened from its copy on the disk, without a turn through this process. In return
			// an open waits for the whole file.
			PassThrough: true, MergeBufferSize: 64 * mebibyte, MergeWorkerCount: 4,
		},
	}}
}

// registryHosts reads containerd's own configuration of registries, with its certificates and its headers, and the
// credentials beside it.
func registryHosts(folder string) source.RegistryHosts {
	hosts := resolver.RegistryHostsFromCRIConfig(context.Background(), resolver.Registry{ConfigPath: folder})
	return func(ref reference.Spec) ([]docker.RegistryHost, error) {
		found, err := hosts(ref)
		for i := range found {
			found[i].Authorizer = docker.NewDockerAuthorizer(
				docker.WithAuthClient(found[i].Client), docker.WithAuthHeader(found[i].Header),
				docker.WithAuthCreds(credentials(folder, ref.Hostname(), found[i].Host)))
			found[i].Client = retrying(found[i].Client)
		}
		return found, err
	}
}

// retrying: containerd's clients do not repeat what has failed; the library sets how often where one can.
func retrying(client *http.Client) *http.Client {
	if client == nil {
		return nil
	}
	again := retryablehttp.NewClient()
	again.HTTPClient = client
	again.Logger = nil
	return again.StandardClient()
}
