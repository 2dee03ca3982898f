package apply

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"rollbox.dev/node/internal/files"
	"rollbox.dev/node/internal/install/config"
	"rollbox.dev/node/internal/install/plan"
	"rollbox.dev/node/internal/install/supervisor"
	"rollbox.dev/node/internal/installed"
)

const first = "# mine\nversion = 3\nroot = '/data'\n"

// node is a folder with the files of a node; the services in it are played.
type node struct {
	*Applier
	root    string
	wanted  *plan.Wanted
	running map[string]bool
	said    []string
	// fails is the call of the supervisor, or the verification, that does.
	fails string
	// live are pods that run in gVisor.
	live []string
}

func newNode(t *testing.T) *node {
	t.Helper()
	root := t.TempDir()
	n := &node{root: root, running: map[string]bool{}}
	n.wanted = &plan.Wanted{
		Folder: filepath.Join(root, "opt/rollbox"), Units: filepath.Join(root, "units"), Handler: "runsc", Run: "/run/rollbox",
		Architecture: "amd64", Payload: map[string]plan.Program{},
		Lazy: &plan.Lazy{Handler: "runsc-lazy", Snapshotter: "lazy", Run: "/run/s", Root: "/var/s", Images: []string{"a/"}},
	}
	n.Applier = &Applier{
		Store: &Store{filepath.Join(n.wanted.Folder, "state")}, Supervisor: n, Payload: filepath.Join(root, "payload"),
		Live:   func(context.Context) ([]string, error) { return n.live, nil },
		Verify: func(context.Context, string) error { return n.say("verify") }, Log: slog.New(slog.DiscardHandler),
	}
	for _, name := range []string{plan.Runsc, plan.Shim, plan.Snapshotter, plan.Checker} {
		n.program(t, name, "1")
	}
	write(t, n.main(), first, 0o640)
	return n
}

func (n *node) main() string { return filepath.Join(n.root, "containerd/config.toml") }

func (n *node) program(t *testing.T, name, version string) {
	content := name + version
	write(t, filepath.Join(n.root, "payload", name), content, 0o644)
	n.wanted.Payload[name] = plan.Program{Digest: plan.Digest([]byte(content)), Version: version}
}

func write(t *testing.T, path, text string, mode fs.FileMode) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), mode)); err != nil {
		t.Fatal(err)
	}
}

func (n *node) say(what string) error {
	n.said = append(n.said, what)
	if n.fails == what {
		n.fails = ""
		return fmt.Errorf("%s does not work", what)
	}
	return nil
}

func (n *node) Restart(_ context.Context, service supervisor.Service) error {
	return n.say("restart " + service.Name)
}

func (n *node) Provide(_ context.Context, service supervisor.Service) error {
	n.running[service.Name] = true
	return n.say("provide " + service.Name)
}

func (n *node) Withdraw(_ context.Context, service supervisor.Service) error {
	delete(n.running, service.Name)
	return n.say("withdraw " + service.Name)
}

func (n *node) Running(_ context.Context, service supervisor.Service) (bool, error) {
	return n.running[service.Name], nil
}

func (n *node) facts(t *testing.T) *plan.Facts {
	t.Helper()
	record, err := n.Store.Record()
	if err != nil {
		t.Fatal(err)
	}
	facts := &plan.Facts{
		Kernel: "6.1.0", Containerd: "2.1.9", Main: n.main(), Supervisor: plan.Systemd, Running: n.running, Record: record,
		Handlers: []string{"runsc", "runsc-lazy"}, Present: map[string]plan.File{},
	}
	text, err := os.ReadFile(n.main())
	if err != nil {
		t.Fatal(err)
	}
	facts.Files = []config.File{{Path: n.main(), Text: text}}
	for _, path := range append(n.wanted.Paths(facts), slices.Collect(maps.Keys(record.Files))...) {
		is, err := files.Look(path)
		if err != nil {
			t.Fatal(err)
		}
		if is != nil {
			facts.Present[path] = *is
		}
	}
	return facts
}

func (n *node) steps(t *testing.T) plan.Plan {
	t.Helper()
	steps, err := plan.Make(n.facts(t), n.wanted)
	if err != nil {
		t.Fatal(err)
	}
	return steps
}

func (n *node) install(t *testing.T) error {
	t.Helper()
	return n.Apply(t.Context(), n.steps(t))
}

func (n *node) uninstall(t *testing.T) error {
	t.Helper()
	steps, err := plan.Undo(n.facts(t))
	if err != nil {
		t.Fatal(err)
	}
	return n.Apply(t.Context(), steps)
}

// tree is every file and folder of the node with its mode and content.
func (n *node) tree(t *testing.T) string {
	t.Helper()
	var text strings.Builder
	err := filepath.WalkDir(n.root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || strings.HasPrefix(path, n.Payload) {
			return err
		}
		about, err := entry.Info()
		content := []byte{}
		if err == nil && !entry.IsDir() {
			content, err = os.ReadFile(path)
		}
		fmt.Fprintf(&text, "%s %v %q\n", path, about.Mode(), content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return text.String()
}

func TestANodeGetsAllOfItAndIsItselfAgainAfterwards(t *testing.T) {
	n := newNode(t)
	before := n.tree(t)
	if err := n.install(t); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(n.wanted.Folder, "bin/runsc"))
	if err != nil || string(content) != "runsc1" {
		t.Fatalf("%q, %v", content, err)
	}
	if steps := n.steps(t); len(steps) > 0 {
		t.Fatalf("again:\n%s", steps.Table())
	}
	if err := n.uninstall(t); err != nil {
		t.Fatal(err)
	}
	if after := n.tree(t); after != before || len(n.running) > 0 {
		t.Errorf("it was\n%sand is\n%s, with %v", before, after, n.running)
	}
}

func TestWhateverFailsIsUndone(t *testing.T) {
	for _, one := range []string{"provide rollbox-snapshotter-mounts", "provide rollbox-snapshotter", "restart containerd", "verify"} {
		n := newNode(t)
		before := n.tree(t)
		n.fails = one
		err := n.install(t)
		if failed := (*FailedError)(nil); !errors.As(err, &failed) || !failed.Undone {
			t.Fatalf("%s: %v", one, err)
		}
		if after := n.tree(t); after != before || len(n.running) > 0 {
			t.Errorf("%s: it was\n%sand is\n%s, with %v", one, before, after, n.running)
		}
		if last := n.said[len(n.said)-1]; (one == "restart containerd" || one == "verify") && last != "restart containerd" {
			t.Errorf("containerd goes on with settings that are gone: %v", n.said)
		}
	}
}

func TestAnUpgradeThatFailsLeavesTheOldVersion(t *testing.T) {
	n := newNode(t)
	if err := n.install(t); err != nil {
		t.Fatal(err)
	}
	before := n.tree(t)
	n.program(t, plan.Runsc, "2")
	n.program(t, plan.Snapshotter, "2")
	n.fails = "verify"
	if err := n.install(t); err == nil {
		t.Fatal("it has not failed")
	}
	if after := n.tree(t); after != before || !n.running[plan.ServeUnit] {
		t.Errorf("it was\n%sand is\n%s, with %v", before, after, n.running)
	}
	if err := n.install(t); err != nil {
		t.Fatal(err)
	}
}

func TestAPayloadThatWasDamagedIsNotInstalled(t *testing.T) {
	n := newNode(t)
	before := n.tree(t)
	write(t, filepath.Join(n.Payload, plan.Shim), "something else", 0o644)
	if err := n.install(t); err == nil || !strings.Contains(err.Error(), "digest") {
		t.Errorf("%v", err)
	}
	if after := n.tree(t); after != before {
		t.Errorf("it was\n%sand is\n%s", before, after)
	}
}

// Wherever the machine stops, the next run finds what was there before, and goes on from it.
func TestARunThatWasStoppedIsUndoneByTheNext(t *testing.T) {
	for _, installed := range []bool{false, true} {
		for stopped := 0; ; stopped++ {
			n := newNode(t)
			if installed {
				if err := n.install(t); err != nil {
					t.Fatal(err)
				}
				n.program(t, plan.Runsc, "2")
				n.program(t, plan.Snapshotter, "2")
			}
			before, running, steps := n.tree(t), maps.Clone(n.running), n.steps(t)
			if stopped > len(steps) {
				break
			}
			begun, err := n.Store.begin(steps)
			for _, step := range steps[:stopped] {
				err = errors.Join(err, n.do(t.Context(), begun, step))
			}
			if stopped == len(steps) {
				_, noted := n.note(begun, steps)
				err = errors.Join(err, noted)
			}
			if err != nil {
				t.Fatal(err)
			}
			// The first undo is stopped too, where it has a service to change.
			n.fails = "restart containerd"
			for again := true; again; again = err != nil {
				var found bool
				if found, err = n.Recover(t.Context()); !found {
					t.Fatalf("after %d steps there is no journal: %v", stopped, err)
				}
			}
			if after := n.tree(t); after != before || !maps.Equal(running, n.running) {
				t.Fatalf("after %d steps it was\n%sand is\n%s, with %v", stopped, before, after, n.running)
			}
			n.fails = ""
			if err := n.install(t); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestWithoutARunThereIsNothingToUndo(t *testing.T) {
	n := newNode(t)
	if found, err := n.Recover(t.Context()); found || err != nil {
		t.Errorf("%v, %v", found, err)
	}
	if err := n.install(t); err != nil {
		t.Fatal(err)
	}
	if found, err := n.Recover(t.Context()); found || err != nil {
		t.Errorf("%v, %v", found, err)
	}
}

func TestASharedFileKeepsItsOwnersAndTheChangesOfOthers(t *testing.T) {
	n := newNode(t)
	if err := n.install(t); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(n.main())
	if err != nil {
		t.Fatal(err)
	}
	write(t, n.main(), string(text)+"state = '/run/data'\n", 0o640)
	if err := n.uninstall(t); err != nil {
		t.Fatal(err)
	}
	if text, _ = os.ReadFile(n.main()); string(text) != first+"state = '/run/data'\n" {
		t.Errorf("it is %q", text)
	}
	if again, err := plan.Undo(n.facts(t)); len(again) > 0 || err != nil {
		t.Errorf("%v, %v", again, err)
	}
}

func TestAFileThatSomebodyChangesMeanwhileIsNotOverwritten(t *testing.T) {
	const theirs = first + "state = '/theirs'\n"
	n := newNode(t)
	steps := n.steps(t)
	write(t, n.main(), theirs, 0o640)
	if err := n.Apply(t.Context(), steps); err == nil || !strings.Contains(err.Error(), "somebody else") {
		t.Errorf("%v", err)
	}
	if text, _ := os.ReadFile(n.main()); string(text) != theirs {
		t.Errorf("it is %q", text)
	}
}

func TestAnUndoKeepsWhatSomebodyHasChangedMeanwhile(t *testing.T) {
	n := newNode(t)
	n.Verify = func(context.Context, string) error {
		text, err := os.ReadFile(n.main())
		write(t, n.main(), string(text)+"state = '/theirs'\n", 0o640)
		return errors.Join(err, errors.New("it does not work"))
	}
	if err := n.install(t); err == nil {
		t.Fatal("it has not failed")
	}
	if text, _ := os.ReadFile(n.main()); string(text) != first+"state = '/theirs'\n" {
		t.Errorf("it is %q", text)
	}
}

func TestNothingIsUndoneUnderSandboxes(t *testing.T) {
	n := newNode(t)
	steps := n.steps(t)
	begun, err := n.Store.begin(steps)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.do(t.Context(), begun, steps[0]); err != nil {
		t.Fatal(err)
	}
	n.live = []string{"sandboxes/sb-1"}
	var refused *plan.Refusal
	if _, err := n.Recover(t.Context()); !errors.As(err, &refused) || refused.Code != plan.LiveSandboxes || !installed.Unfinished(n.Store.Folder) {
		t.Errorf("%v", err)
	}
	n.live = nil
	if _, err := n.Recover(t.Context()); err != nil || installed.Unfinished(n.Store.Folder) {
		t.Errorf("%v", err)
	}
}

func TestASandboxThatStartsMeanwhileEndsAnInstallBeforeAServiceIsChanged(t *testing.T) {
	n := newNode(t)
	before, steps := n.tree(t), n.steps(t)
	n.live = []string{"sandboxes/sb-1"}
	if err := n.Apply(t.Context(), steps); err == nil {
		t.Fatal("it has not failed")
	}
	if after := n.tree(t); after != before || len(n.said) > 0 {
		t.Errorf("it was\n%sand is\n%s, after %v", before, after, n.said)
	}
}
