package mirror

import (
	"slices"
	"strings"
	"sync"
)

// About 200 bytes each.
const mostKnown = 32_768

// Known remembers in which repository of the private registry a blob is, by the upstream registry that has it, so that
// a layer that many images have is sent once. Only blobs of the same upstream registry are taken: that registry would
// not give a manifest that names a blob of a repository which its author may not read, while another one might, and
// so get at the layers of others' private images.
type Known struct {
	mu    sync.Mutex
	most  int
	in    map[string]string
	order []string
}

// NewKnown returns an empty memory for so many blobs.
func NewKnown(most int) *Known {
	return &Known{most: most, in: map[string]string{}}
}

func (k *Known) add(host, digest, repository string) {
	key := strings.Join([]string{host, digest}, " ")
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, there := k.in[key]; !there {
		k.order = append(k.order, key)
	}
	k.in[key] = repository
	for len(k.order) > k.most {
		delete(k.in, k.order[0])
		k.order = k.order[1:]
	}
}

func (k *Known) find(host, digest string) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.in[host+" "+digest]
}

// forget drops all that is remembered of a registry.
func (k *Known) forget(host string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.order = slices.DeleteFunc(k.order, func(key string) bool {
		dropped := strings.HasPrefix(key, host+" ")
		if dropped {
			delete(k.in, key)
		}
		return dropped
	})
}
