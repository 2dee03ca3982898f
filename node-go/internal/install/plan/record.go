package plan

import (
	"maps"
	"slices"

	"rollbox.dev/node/internal/install/config"
)

// Record is what an installer has done to a node so far.
type Record struct {
	// Files by their paths.
	Files map[string]Owned `json:"files"`
	// Services that were provided.
	Services []string `json:"services"`
}

// Owned is a file that an installer has written.
type Owned struct {
	// Written is the digest that it got.
	Written string `json:"written"`
	// Original is what was there before; nil: nothing was.
	Original *File `json:"original,omitempty"`
}

// Undo decides how everything is taken away again. Files of the installer alone become what they were before; of a
// shared one that somebody has changed since, only the import is taken out.
//
// Errors: *Refusal.
func Undo(facts *Facts) (Plan, error) {
	made := append(withdrawn(facts, nil), leave(facts, slices.Sorted(maps.Keys(facts.Record.Files)))...)
	if len(made) == 0 {
		return nil, nil
	}
	made = append(made, Step{Do: Restart, Target: Containerd, Why: "its settings are what they were"})
	return append(made, Step{Do: Verify, Target: Containerd, Why: "containerd answers"}), CheckLive(facts.Live)
}

// outdated takes away what an earlier install has written and this one has no use for.
func outdated(facts *Facts, wanted *Wanted) Plan {
	used := wanted.Paths(facts)
	var paths []string
	for _, path := range slices.Sorted(maps.Keys(facts.Record.Files)) {
		if !slices.Contains(used, path) {
			paths = append(paths, path)
		}
	}
	return append(withdrawn(facts, wanted.Services()), leave(facts, paths)...)
}

// withdrawn ends services before their programs and settings go.
func withdrawn(facts *Facts, wanted []string) (made Plan) {
	for _, service := range facts.Record.Services {
		if !slices.Contains(wanted, service) {
			made = append(made, Step{Do: Withdraw, Target: service, Why: "it is not wanted any more"})
		}
	}
	return made
}

// leave gives files back what they were.
func leave(facts *Facts, paths []string) (made Plan) {
	for _, path := range paths {
		owned := facts.Record.Files[path]
		is, there := facts.Present[path]
		switch {
		case path == facts.Main && there && is.Digest != owned.Written:
			without := config.WithoutImport(facts.Files[0].Text, AdditionPath(facts.Main))
			if digest := Digest(without); digest != is.Digest {
				made = append(made, Step{
					Do: Write, Target: path, Why: "the import is taken out", Mode: is.Mode, Digest: digest, From: is.Digest, Text: without,
					Shared: true, Undoes: true,
				})
				continue
			}
			made = append(made, Step{Do: Forget, Target: path, Why: "somebody else has changed it"})
		case owned.Original != nil:
			made = append(made, Step{Do: Restore, Target: path, Why: "it is what it was", Mode: owned.Original.Mode, Digest: owned.Original.Digest})
		case there:
			made = append(made, Step{Do: Remove, Target: path, Why: "it was not there"})
		default:
			made = append(made, Step{Do: Forget, Target: path, Why: "somebody else has removed it"})
		}
	}
	return made
}
