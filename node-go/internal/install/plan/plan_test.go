package plan

import (
	"errors"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"rollbox.dev/node/internal/install/config"
)

const main = "/etc/containerd/config.toml"

func wanted() *Wanted {
	return &Wanted{
		Folder: "/opt/rollbox", Handler: "runsc", Run: "/run/rollbox", Units: "/etc/systemd/system", Architecture: "amd64",
		Payload: map[string]Program{Runsc: {"r1", "1"}, Shim: {"s1", "1"}, Snapshotter: {"n1", "1"}, Checker: {"c1", "1"}},
	}
}

func lazily() *Wanted {
	want := wanted()
	want.Lazy = &Lazy{
		Handler: "runsc-lazy", Snapshotter: "lazy", Images: []string{"example.com/estargz/"}, Run: "/run/rollbox-snapshotter",
		Root: "/var/lib/rollbox-snapshotter", Registries: "/etc/containerd/certs.d",
	}
	return want
}

// node is one whose files are played: a text or, of programs, a digest.
type node struct {
	facts     Facts
	texts     map[string]string
	originals map[string]string
}

func bare(first string) *node {
	made := &node{texts: map[string]string{}, originals: map[string]string{}}
	made.facts = Facts{Kernel: "6.1.0-9-amd64", Containerd: "v2.1.9", Main: main, Supervisor: Systemd, Record: Record{Files: map[string]Owned{}}, Running: map[string]bool{}}
	if first != "" {
		made.put(main, 0o640, first, "")
	}
	return made.look()
}

func (n *node) put(path string, mode uint32, text, digest string) {
	if n.facts.Present == nil {
		n.facts.Present = map[string]File{}
	}
	if digest == "" {
		digest = Digest([]byte(text))
	}
	n.texts[path] = text
	n.facts.Present[path] = File{Mode: modeBits(mode), Digest: digest}
}

// look reads containerd's settings anew.
func (n *node) look() *node {
	n.facts.Files = nil
	if text, there := n.texts[main]; there {
		n.facts.Files = []config.File{{Path: main, Text: []byte(text)}}
	}
	return n
}

// do plays a plan.
func (n *node) do(steps Plan) {
	for _, step := range steps {
		owned, ours := n.facts.Record.Files[step.Target]
		switch step.Do {
		case Write:
			if is, there := n.facts.Present[step.Target]; !ours || step.Shared && is.Digest != owned.Written {
				owned = Owned{}
				if there {
					owned.Original = &is
					n.originals[step.Target] = n.texts[step.Target]
				}
			}
			owned.Written = step.Digest
			n.facts.Record.Files[step.Target] = owned
			if step.Undoes {
				delete(n.facts.Record.Files, step.Target)
			}
			n.put(step.Target, uint32(step.Mode), string(step.Text), step.Digest)
		case Restore:
			n.put(step.Target, uint32(step.Mode), n.originals[step.Target], step.Digest)
			delete(n.facts.Record.Files, step.Target)
		case Remove:
			delete(n.facts.Present, step.Target)
			delete(n.texts, step.Target)
			delete(n.facts.Record.Files, step.Target)
		case Forget:
			delete(n.facts.Record.Files, step.Target)
		case Provide:
			n.facts.Running[step.Target] = true
			if !slices.Contains(n.facts.Record.Services, step.Target) {
				n.facts.Record.Services = append(n.facts.Record.Services, step.Target)
			}
		case Withdraw:
			delete(n.facts.Running, step.Target)
			n.facts.Record.Services = slices.DeleteFunc(n.facts.Record.Services, func(one string) bool { return one == step.Target })
		case Restart:
			n.facts.Handlers = []string{"runsc", "runsc-lazy"}
		}
	}
	n.look()
}

func (n *node) must(t *testing.T, want *Wanted) Plan {
	t.Helper()
	steps, err := Make(&n.facts, want)
	if err != nil {
		t.Fatal(err)
	}
	return steps
}

func modeBits(bits uint32) os.FileMode { return os.FileMode(bits) }

func said(steps Plan) string {
	var words []string
	for _, step := range steps {
		words = append(words, string(step.Do)+" "+step.Target[strings.LastIndex(step.Target, "/")+1:])
	}
	return strings.Join(words, ", ")
}

func TestABareNodeGetsAllOfIt(t *testing.T) {
	programs := "write containerd-shim-runsc-v1, write rollbox-node, "
	for _, one := range []struct {
		want  *Wanted
		first string
		steps string
	}{
		{wanted(), "", programs + "write runsc, write runsc.toml, write rollbox.toml, write config.toml, restart containerd, verify runsc"},
		{wanted(), "version = 2\n", programs + "write runsc, write runsc.toml, write rollbox.toml, write config.toml, restart containerd, verify runsc"},
		{wanted(), "version = 3\nimports = ['conf.d/*.toml']\n", programs + "write runsc, write runsc.toml, write rollbox.toml, restart containerd, verify runsc"},
		{lazily(), "version = 3\n", "write rollbox-snapshotter-mounts.service, write rollbox-snapshotter.service, " + programs +
			"write rollbox-snapshotter, write runsc, write runsc.toml, write snapshotter.env, write rollbox.toml, write config.toml, " +
			"provide rollbox-snapshotter-mounts, provide rollbox-snapshotter, restart containerd, verify runsc"},
	} {
		if steps := said(bare(one.first).must(t, one.want)); steps != one.steps {
			t.Errorf("%q:\n%s, not\n%s", one.first, steps, one.steps)
		}
	}
}

func TestANodeThatHasItIsLeftAlone(t *testing.T) {
	for _, want := range []*Wanted{wanted(), lazily()} {
		n := bare("version = 3\n")
		n.do(n.must(t, want))
		n.facts.Live = []string{"sandboxes/sb-1"}
		if steps := n.must(t, want); len(steps) > 0 {
			t.Errorf("again: %s", said(steps))
		}
	}
}

func TestOnlyWhatIsNewIsDone(t *testing.T) {
	for change, steps := range map[string]string{
		"runsc":   "write runsc, verify runsc",
		"lazy":    "write rollbox-snapshotter, provide rollbox-snapshotter-mounts, provide rollbox-snapshotter, verify runsc",
		"trusted": "write snapshotter.env, provide rollbox-snapshotter-mounts, provide rollbox-snapshotter, verify runsc",
		"handler": "write rollbox.toml, restart containerd, verify gvisor",
		"stopped": "provide rollbox-snapshotter, verify runsc",
		"offered": "restart containerd, verify runsc",
		"damaged": "write runsc.toml, verify runsc",
		"not lazy": "write rollbox.toml, withdraw rollbox-snapshotter-mounts, withdraw rollbox-snapshotter, remove rollbox-snapshotter-mounts.service, " +
			"remove rollbox-snapshotter.service, remove rollbox-snapshotter, remove snapshotter.env, restart containerd, verify runsc",
	} {
		n, want := bare("version = 3\n"), lazily()
		n.do(n.must(t, want))
		switch change {
		case "runsc":
			want.Payload[Runsc] = Program{"r2", "2"}
		case "lazy":
			want.Payload[Snapshotter] = Program{"n2", "2"}
		case "trusted":
			want.Lazy.Images = []string{"example.com/other/"}
		case "handler":
			want.Handler = "gvisor"
		case "stopped":
			delete(n.facts.Running, ServeUnit)
		case "offered":
			n.facts.Handlers = nil
		case "damaged":
			n.put(want.ShimSettings(), 0o644, "", "")
		case "not lazy":
			want.Lazy = nil
		}
		if done := said(n.must(t, want)); done != steps {
			t.Errorf("%s:\n%s, not\n%s", change, done, steps)
		}
	}
}

func TestWhatCannotBeIsRefused(t *testing.T) {
	const other = "version = 3\n[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runsc]\nruntime_type = 'io.containerd.runsc.v1'\n"
	for code, change := range map[string]func(*node, *Wanted){
		KernelTooOld:           func(n *node, _ *Wanted) { n.facts.Kernel = "5.3.18-default" },
		ContainerdTooOld:       func(n *node, _ *Wanted) { n.facts.Containerd = "1.7.27~ds1" },
		ContainerdTooOld + " ": func(n *node, _ *Wanted) { n.facts.Containerd = "" },
		ConfigVersion:          func(n *node, _ *Wanted) { n.put(main, 0o644, "version = 4\n", "") },
		ConfigVersion + " ":    func(n *node, w *Wanted) { n.put(main, 0o644, "version = 2\n", ""); w.Lazy = lazily().Lazy },
		ConfigUnread:           func(n *node, _ *Wanted) { n.put(main, 0o644, "version = ", "") },
		ConfigUnread + " ":     func(n *node, _ *Wanted) { n.facts.Unseen = []string{"/elsewhere/a.toml"} },
		HandlerTaken:           func(n *node, _ *Wanted) { n.put(main, 0o644, other, "") },
		HandlerTaken + " ":     func(n *node, _ *Wanted) { n.put(AdditionPath(main), 0o644, "version = 3\n", "") },
		LiveSandboxes:          func(n *node, _ *Wanted) { n.facts.Live = []string{"sandboxes/sb-1"} },
	} {
		n, want := bare("version = 3\n"), wanted()
		change(n, want)
		_, err := Make(&n.look().facts, want)
		if refused := (*Refusal)(nil); !errors.As(err, &refused) || refused.Code != strings.TrimSpace(code) {
			t.Errorf("%s: %v", code, err)
		}
	}
}

// Whatever was installed and changed meanwhile: a second plan is empty, and an undo leaves the node as it was.
func TestAnyHistoryEndsWhereItBegan(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	firsts := []string{"", "version = 2\n", "version = 3\n", "# mine\nversion = 3\nimports = [\n 'conf.d/a.toml' ]\nroot = '/data'\n[grpc]\n"}
	for range 500 {
		first := firsts[random.IntN(len(firsts))]
		n := bare(first)
		for range 1 + random.IntN(4) {
			want := wanted()
			if random.IntN(2) == 0 && !strings.Contains(first, "= 2") {
				want = lazily()
			}
			for name := range want.Payload {
				want.Payload[name] = Program{Digest: string(rune('a' + random.IntN(3)))}
			}
			n.do(n.must(t, want))
			if steps := n.must(t, want); len(steps) > 0 {
				t.Fatalf("again: %s", said(steps))
			}
		}
		steps, err := Undo(&n.facts)
		if err != nil {
			t.Fatal(err)
		}
		n.do(steps)
		is, there := n.facts.Present[main]
		if n.texts[main] != first || there && is.Mode != 0o640 || len(n.facts.Present) > 1 || len(n.facts.Running) > 0 || len(n.facts.Record.Files) > 0 {
			t.Fatalf("%q became %q, with %v, %v", first, n.texts[main], n.facts.Present, n.facts.Running)
		}
		if steps, _ := Undo(&n.facts); len(steps) > 0 {
			t.Fatalf("undone again: %s", said(steps))
		}
	}
}

func TestChangesOfOthersOutliveAnUndo(t *testing.T) {
	n, want := bare("version = 3\n"), wanted()
	n.do(n.must(t, want))
	n.put(main, 0o640, n.texts[main]+"root = '/data'\n", "")
	n.look()
	if steps := n.must(t, want); len(steps) > 0 {
		t.Errorf("somebody's change is undone: %s", said(steps))
	}
	steps, err := Undo(&n.facts)
	if err != nil {
		t.Fatal(err)
	}
	n.do(steps)
	if text := n.texts[main]; text != "version = 3\nroot = '/data'\n" {
		t.Errorf("it is %q", text)
	}
}
