// Package broken is what the process that serves lazily mounted layers tells the node's agent: of which ones a file could
// not be read, since the registry gave something else than their tables of contents say.
package broken

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
)

// File is in the folder of the socket of that process. It has a line for each layer since the process began.
const File = "broken"

// Most is how many layers it has at most.
const Most = 256

const mostBytes = 1 << 20

// Layer is a line of the file.
type Layer struct {
	Digest string `json:"layer"` // as manifests name it
	Why    string `json:"why"`
}

// Read returns why layers are broken by their digests, beside a socket; none where there is no file.
func Read(socket string) map[string]string {
	layers := map[string]string{}
	file, err := os.Open(filepath.Join(filepath.Dir(socket), File))
	if err != nil {
		return layers
	}
	defer file.Close()
	for lines := bufio.NewScanner(io.LimitReader(file, mostBytes)); lines.Scan(); {
		var one Layer
		if json.Unmarshal(lines.Bytes(), &one) == nil && one.Digest != "" && len(layers) < Most {
			layers[one.Digest] = one.Why
		}
	}
	return layers
}
