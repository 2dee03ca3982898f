// Package config reads containerd's settings as containerd does, and says which files give it a runtime for gVisor. It
// touches no file: its input and output are texts.
package config

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

// File is one of the files of containerd's settings.
type File struct {
	Path string
	Text []byte
}

// The versions of containerd's settings that are understood. Newer ones have other names of plugins.
var versions = []int64{2, 3}

// Settings is what containerd makes of its files.
type Settings struct {
	Version int64
	// Imports are those of the first file, as it has them.
	Imports []string
	tree    map[string]any
}

// VersionError is a version of the settings that is not understood.
type VersionError struct {
	Path    string
	Version int64
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("%s has version %d; versions 2 and 3 are understood, and all files have to have the same", e.Path, e.Version)
}

// Read merges the files in this order, as containerd does: tables by their keys, and of everything else the last counts.
// Without a file containerd has its own settings, which have the newest version that is understood.
func Read(files []File) (*Settings, error) {
	read := &Settings{Version: versions[len(versions)-1], tree: map[string]any{}}
	for i, file := range files {
		tree, err := parse(file)
		if err != nil {
			return nil, err
		}
		version, _ := tree["version"].(int64)
		if !slices.Contains(versions, version) || i > 0 && version != read.Version {
			return nil, &VersionError{file.Path, version}
		}
		if i == 0 {
			read.Version, read.Imports = version, importsOf(tree)
		}
		merge(read.tree, tree)
	}
	return read, nil
}

func parse(file File) (map[string]any, error) {
	tree := map[string]any{}
	if err := toml.Unmarshal(file.Text, &tree); err != nil {
		return nil, fmt.Errorf("%s is not TOML: %w", file.Path, err)
	}
	return tree, nil
}

func importsOf(tree map[string]any) []string {
	list, _ := tree["imports"].([]any)
	var imports []string
	for _, one := range list {
		if text, is := one.(string); is {
			imports = append(imports, text)
		}
	}
	return imports
}

func merge(to, from map[string]any) {
	for key, value := range from {
		below, isTable := value.(map[string]any)
		if there, both := to[key].(map[string]any); isTable && both {
			merge(there, below)
			continue
		}
		to[key] = value
	}
}

// at returns the table of a path; nil: there is none.
func (s *Settings) at(path ...string) map[string]any {
	here := s.tree
	for _, key := range path {
		here, _ = here[key].(map[string]any)
	}
	return here
}

func (s *Settings) runtimes() map[string]any {
	return s.at("plugins", names[s.Version].runtimes, "containerd", "runtimes")
}

// HasHandler tells whether containerd has a runtime of this name.
func (s *Settings) HasHandler(name string) bool { return s.runtimes()[name] != nil }

// HasSnapshotter tells whether containerd has a proxy plugin of this name.
func (s *Settings) HasSnapshotter(name string) bool { return s.at("proxy_plugins")[name] != nil }

// Handlers are the runtimes whose containers are gVisor's.
func (s *Settings) Handlers() []string {
	var found []string
	for name, settings := range s.runtimes() {
		table, _ := settings.(map[string]any)
		if kind, _ := table["runtime_type"].(string); strings.Contains(kind, "runsc") {
			found = append(found, name)
		}
	}
	slices.Sort(found)
	return found
}

// Snapshotter is the one of all images that no runtime has another for.
func (s *Settings) Snapshotter() string {
	if name, _ := s.at(append([]string{"plugins"}, names[s.Version].images...)...)["snapshotter"].(string); name != "" {
		return name
	}
	return "overlayfs"
}

// Covers tells whether one of the imports of a file takes in another file.
func Covers(main string, imports []string, file string) bool {
	return slices.ContainsFunc(imports, func(one string) bool {
		pattern := Resolve(main, one)
		matches, err := filepath.Match(pattern, file)
		return pattern == file || strings.Contains(pattern, "*") && err == nil && matches
	})
}

// Resolve returns the path, or the pattern, that an import of a file means.
func Resolve(main, one string) string {
	if one = filepath.Clean(one); filepath.IsAbs(one) {
		return one
	}
	return filepath.Join(filepath.Dir(main), one)
}
