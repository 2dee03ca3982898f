package mirror

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

func TestWhatConversionsThatBrokeOffHaveLeftIsBounded(t *testing.T) {
	now := time.Now()
	for name, one := range map[string]struct {
		ages  map[string]time.Duration // of folders with 10 bytes each
		limit int64
		left  []string
	}{
		"all of it has room":                 {map[string]time.Duration{"a": 1, "b": 2}, 20, []string{"a", "b"}},
		"the youngest stay":                  {map[string]time.Duration{"a": 3 * time.Hour, "b": time.Hour, "c": 2 * time.Hour}, 20, []string{"b", "c"}},
		"the own one does not count":         {map[string]time.Duration{"own": time.Hour, "a": 1}, 10, []string{"a", "own"}},
		"the own one stays however old":      {map[string]time.Duration{"own": 48 * time.Hour}, 0, []string{"own"}},
		"none stays for more than some time": {map[string]time.Duration{"a": keptFor + time.Minute, "b": keptFor - time.Minute}, 100, []string{"b"}},
		"no room":                            {map[string]time.Duration{"a": 1}, 9, nil},
	} {
		in := t.TempDir()
		for folder, age := range one.ages {
			path := filepath.Join(in, workshops+folder)
			if err := os.Mkdir(path, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(path, "layer"), make([]byte, 10), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chtimes(path, time.Time{}, now.Add(-age)); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(in, "another program's"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := makeRoom(in, workshops+"own", one.limit, now); err != nil {
			t.Fatal(err)
		}
		var left []string
		found, _ := filepath.Glob(filepath.Join(in, workshops+"*"))
		for _, path := range found {
			left = append(left, filepath.Base(path)[len(workshops):])
		}
		slices.Sort(left)
		if _, err := os.Stat(filepath.Join(in, "another program's")); err != nil || !slices.Equal(left, one.left) {
			t.Errorf("%s: %v is left instead of %v (%v)", name, left, one.left, err)
		}
	}
}
