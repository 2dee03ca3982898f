package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io/fs"
	"path/filepath"
	"slices"

	"rollbox.dev/node/internal/install/config"
)

// Verb is what a step does.
type Verb string

// The verbs, in the order in which a plan has them.
const (
	Write    Verb = "write"
	Restore  Verb = "restore"  // put back what was there before the first install
	Remove   Verb = "remove"   // where nothing was
	Forget   Verb = "forget"   // leave to whoever has changed it
	Withdraw Verb = "withdraw" // end a service, for good
	Provide  Verb = "provide"  // have a service started, now and at every start of the node
	Restart  Verb = "restart"
	Verify   Verb = "verify"
)

// Step is one step of a plan.
type Step struct {
	Do     Verb   `json:"do"`
	Target string `json:"target"`
	Why    string `json:"why"`
	// Of a file that is written.
	Mode   fs.FileMode `json:"mode,omitempty"`
	Digest string      `json:"digest,omitempty"`
	// From is the digest of the content that is replaced; empty: nothing is there.
	From string `json:"from,omitempty"`
	// Program is the part of the payload that it is; empty: it is Text.
	Program string `json:"program,omitempty"`
	Text    []byte `json:"-"`
	// Shared files have settings of others too.
	Shared bool `json:"shared,omitempty"`
	// Undoes: after it nothing of the file is the installer's.
	Undoes bool `json:"undoes,omitempty"`
}

// Plan is all steps; none: the node is as it is wanted.
type Plan []Step

// Digest names a plan: the same steps have the same.
func (p Plan) Digest() string {
	text, _ := json.Marshal(p)
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// Make decides what is to be done.
//
// Errors: *Refusal.
func Make(facts *Facts, wanted *Wanted) (Plan, error) {
	if err := checkVersions(facts); err != nil {
		return nil, err
	}
	settings, err := settingsOf(facts, wanted)
	if err != nil {
		return nil, err
	}
	made, err := writes(facts, wanted, settings)
	if err != nil {
		return nil, err
	}
	made = append(made, outdated(facts, wanted)...)
	made = append(made, services(facts, wanted, made)...)
	if len(made) == 0 {
		return nil, nil
	}
	return append(made, Step{Do: Verify, Target: wanted.Handler, Why: "a command runs in gVisor, and containerd offers the runtime"}), CheckLive(facts.Live)
}

func writes(facts *Facts, wanted *Wanted, settings *config.Settings) (Plan, error) {
	files := wanted.own(facts.Supervisor)
	added, err := wanted.addition().Text(settings)
	if err != nil {
		return nil, refuse(ConfigUnread, "%v", err)
	}
	file := AdditionPath(facts.Main)
	_, ours := facts.Record.Files[file]
	if is, there := facts.Present[file]; there && !ours && is.Digest != Digest(added) {
		return nil, refuse(HandlerTaken, "%s is there and this installer (%s) has not written it: another one has, or somebody; uninstall it with that one, or remove it", file, wanted.Folder)
	}
	files[file] = text(0o644, string(added))
	if !config.Covers(facts.Main, settings.Imports, file) {
		first, err := withImport(facts, file)
		if err != nil {
			return nil, err
		}
		files[facts.Main] = text(modeOf(facts, facts.Main), string(first))
	}
	var made Plan
	for _, path := range wanted.Paths(facts) {
		want, planned := files[path]
		is, there := facts.Present[path]
		if !planned || there && is.Digest == want.digest && is.Mode == want.mode {
			continue
		}
		why := "it is not there"
		if there {
			why = "it differs"
		}
		shared := path == facts.Main
		made = append(made, Step{
			Do: Write, Target: path, Why: why, Mode: want.mode, Digest: want.digest, From: is.Digest, Program: want.program,
			Text: want.text, Shared: shared,
		})
	}
	return made, nil
}

func withImport(facts *Facts, file string) ([]byte, error) {
	if len(facts.Files) == 0 {
		return config.First(file), nil
	}
	text, err := config.WithImport(facts.Files[0].Text, file)
	if err != nil {
		return nil, refuse(ConfigUnread, "%v", err)
	}
	return text, nil
}

func modeOf(facts *Facts, path string) fs.FileMode {
	if there, is := facts.Present[path]; is {
		return there.Mode
	}
	return 0o644
}

// services starts anew what reads what is new.
func services(facts *Facts, wanted *Wanted, written Plan) (made Plan) {
	own := wanted.own(facts.Supervisor)
	isNew := func(match func(path string) bool) bool {
		return slices.ContainsFunc(written, func(step Step) bool { return match(step.Target) })
	}
	ofSnapshotter := isNew(func(path string) bool {
		_, ours := own[path]
		name := filepath.Base(path)
		return ours && (name == Snapshotter || path == wanted.environment() || filepath.Ext(name) == ".service")
	})
	for _, service := range wanted.Services() {
		switch {
		case ofSnapshotter:
			made = append(made, Step{Do: Provide, Target: service, Why: "its program or its settings are new"})
		case !facts.Running[service]:
			made = append(made, Step{Do: Provide, Target: service, Why: "it does not run"})
		}
	}
	if isNew(func(path string) bool { return path == facts.Main || path == AdditionPath(facts.Main) }) {
		return append(made, Step{Do: Restart, Target: Containerd, Why: "its settings are new"})
	}
	for _, handler := range wanted.Handlers() {
		if !slices.Contains(facts.Handlers, handler) {
			return append(made, Step{Do: Restart, Target: Containerd, Why: "it does not offer " + handler})
		}
	}
	return made
}
