package snapshotter

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	dockerconfig "github.com/containerd/containerd/v2/core/remotes/docker/config"
	"github.com/containerd/errdefs"
)

// credentialsFile is in a registry's folder, beside its hosts.toml: USER:PASSWORD.
const credentialsFile = "credentials"

// credentials reads a registry's file whenever the registry asks who it is, so what is mounted goes on with credentials
// that were changed meanwhile. A host that the registry sends on to gets none.
func credentials(folder, registry, only string) func(host string) (string, string, error) {
	return func(host string) (string, string, error) {
		if host != only {
			return "", "", nil
		}
		of, err := dockerconfig.HostDirFromRoot(folder)(registry)
		if errdefs.IsNotFound(err) || of == "" {
			return "", "", nil
		}
		if err != nil {
			return "", "", err
		}
		file := filepath.Join(of, credentialsFile)
		text, err := os.ReadFile(file)
		if errors.Is(err, os.ErrNotExist) {
			return "", "", nil
		}
		if err != nil {
			return "", "", err
		}
		user, password, ok := strings.Cut(strings.TrimSpace(string(text)), ":")
		if !ok {
			return "", "", fmt.Errorf("%s has no USER:PASSWORD", file)
		}
		return user, password, nil
	}
}
