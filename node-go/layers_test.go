package node

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// Packages of internal, from the bottom: each uses only those of lines above its own.
var layers = [][]string{
	{"accounts", "avoid", "broken", "builder", "convert", "distribution", "files", "layer", "mtls", "process", "record", "telemetry", "usage", "wire"},
	{"gate", "installed", "limits", "problem", "runsc"},
	{"containerd"},
	{"pods"},
	{"images", "kernel", "commit"},
	{"agent", "collector", "mirror", "peers", "snapshotter"},
	{"install/config"},
	{"install/plan"},
	{"install/supervisor"},
	{"install/apply", "install/node"},
	{"install"},
}

const inside = "rollbox.dev/node/internal/"

func TestPackagesUseOnlyThoseBelowThem(t *testing.T) {
	level := map[string]int{}
	for number, names := range layers {
		for _, name := range names {
			level[name] = number
		}
	}
	seen := map[string]bool{}
	err := filepath.WalkDir("internal", func(path string, entry os.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		name := filepath.ToSlash(strings.TrimPrefix(filepath.Dir(path), "internal/"))
		seen[name] = true
		if _, known := level[name]; !known {
			t.Errorf("%s is in no layer", name)
		}
		read, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, one := range read.Imports {
			used, _ := strconv.Unquote(one.Path.Value)
			if strings.HasPrefix(used, "rollbox.dev/node/doubles/") {
				t.Errorf("%s imports %s, which is for tests", path, used)
			}
			if used, ours := strings.CutPrefix(used, inside); ours && level[used] >= level[name] {
				t.Errorf("%s imports %s, which is not below %s", path, used, name)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for name := range level {
		if !seen[name] {
			t.Errorf("%s is in a layer, and no package", name)
		}
	}
}
