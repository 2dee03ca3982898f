package collector

import (
	"encoding/hex"
	"path/filepath"
	"strings"
)

// hash is the SHA-256 of a blob. Blobs by other digests are neither looked at nor removed.
type hash [32]byte

func (h hash) String() string { return "sha256:" + h.hex() }
func (h hash) hex() string    { return hex.EncodeToString(h[:]) }

// parseHash reads `sha256:HEX`, or HEX alone.
func parseHash(text string) (hash, bool) {
	var found hash
	raw, err := hex.DecodeString(strings.TrimPrefix(strings.TrimSpace(text), "sha256:"))
	if err != nil || len(raw) != len(found) {
		return found, false
	}
	return hash(raw), true
}

// Of repositories for converted copies.
const convertedFolder = "estargz"

// Repositories whose images are copies, which can be made again.
var copyFolders = []string{"mirror/", convertedFolder + "/"}

func isCopy(repository string) bool {
	for _, one := range copyFolders {
		if strings.HasPrefix(repository, one) {
			return true
		}
	}
	return false
}

// Tags that stand for an index with one entry, a copy of the same repository: what a user's tag meant, and whether a
// sandbox has started from the copy (internal/mirror).
func isNote(tag string) bool {
	return strings.HasPrefix(tag, "tag-") || strings.HasPrefix(tag, "boot-")
}

// layout is where Distribution's file system driver keeps what; the folder is the registry's `rootdirectory`.
type layout struct{ folder string }

func (l layout) base() string         { return filepath.Join(l.folder, "docker/registry/v2") }
func (l layout) blobs() string        { return filepath.Join(l.base(), "blobs/sha256") }
func (l layout) repositories() string { return filepath.Join(l.base(), "repositories") }
func (l layout) own() string          { return filepath.Join(l.folder, "collector") }
func (l layout) trash() string        { return filepath.Join(l.own(), "trash") }
func (l layout) reserve() string      { return filepath.Join(l.own(), "reserve") }

func (l layout) blob(h hash) string {
	return filepath.Join(l.blobs(), h.hex()[:2], h.hex(), "data")
}

func (l layout) repository(name string) string { return filepath.Join(l.repositories(), name) }

func (l layout) revision(repository string, h hash) string {
	return filepath.Join(l.repository(repository), "_manifests/revisions/sha256", h.hex(), "link")
}

func (l layout) layer(repository string, h hash) string {
	return filepath.Join(l.repository(repository), "_layers/sha256", h.hex(), "link")
}

func (l layout) tags(repository string) string {
	return filepath.Join(l.repository(repository), "_manifests/tags")
}

func (l layout) uploads(repository string) string {
	return filepath.Join(l.repository(repository), "_uploads")
}
