package convert

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
)

// Whatever a layer is made of, reading its headers ends, and says why it is refused.
func FuzzScan(f *testing.F) {
	f.Add([]byte{})
	f.Add(make([]byte, 1024))
	f.Fuzz(func(t *testing.T, content []byte) {
		_, _, err := scan(bytes.NewReader(content), Limits{Entries: 100, HeaderBytes: 1 << 20, Duplicates: 5})
		var refused *RefusedError
		if err != nil && !errors.As(err, &refused) {
			t.Errorf("got %v", err)
		}
	})
}

func TestWhatALayersHeadersHoldIsBounded(t *testing.T) {
	for title, make := range map[string]func(number int) *tar.Header{
		"names": func(number int) *tar.Header {
			return &tar.Header{Name: fmt.Sprintf("%03d/%s", number, strings.Repeat("n/", 1000))}
		},
		"links": func(number int) *tar.Header {
			return &tar.Header{Name: fmt.Sprint(number), Typeflag: tar.TypeSymlink, Linkname: strings.Repeat("l", 2000)}
		},
		"attributes": func(number int) *tar.Header {
			records := map[string]string{"SCHILY.xattr.user.a": strings.Repeat("a", 2000)}
			return &tar.Header{Name: fmt.Sprint(number), PAXRecords: records}
		},
	} {
		for entries, taken := range map[int]bool{90: true, 110: false} {
			content := &bytes.Buffer{}
			writer := tar.NewWriter(content)
			for number := range entries {
				if err := writer.WriteHeader(make(number)); err != nil {
					t.Fatal(err)
				}
			}
			if err := writer.Close(); err != nil {
				t.Fatal(err)
			}
			_, _, err := scan(bytes.NewReader(content.Bytes()), Limits{Entries: 1000, HeaderBytes: 210_000, Duplicates: 5})
			refused := new(RefusedError)
			if taken && err != nil || !taken && (!errors.As(err, &refused) || !strings.Contains(err.Error(), "210000 bytes")) {
				t.Errorf("%d entries with long %s: %v", entries, title, err)
			}
		}
	}
}
