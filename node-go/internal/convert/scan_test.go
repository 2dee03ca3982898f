package convert

import (
	"bytes"
	"errors"
	"testing"
)

// Whatever a layer is made of, reading its headers ends, and says why it is refused.
func FuzzScan(f *testing.F) {
	f.Add([]byte{})
	f.Add(make([]byte, 1024))
	f.Fuzz(func(t *testing.T, content []byte) {
		_, err := scan(bytes.NewReader(content), Limits{Entries: 100, Duplicates: 5})
		var refused *RefusedError
		if err != nil && !errors.As(err, &refused) {
			t.Errorf("got %v", err)
		}
	})
}
