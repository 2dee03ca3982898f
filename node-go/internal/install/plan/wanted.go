package plan

import (
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"rollbox.dev/node/internal/install/config"
	"rollbox.dev/node/internal/installed"
)

// Wanted is what a node is to have.
type Wanted struct {
	// Folder holds all that is the installer's own but containerd's settings and units of systemd.
	Folder string
	// Payload are programs by name, as the image has them.
	Payload map[string]Program
	// Handler is the name of gVisor's runtime.
	Handler string
	// Run is the folder in which runsc keeps what runs.
	Run string
	// Lazy is lazy pulling; nil: none.
	Lazy *Lazy
	// Units is the folder of systemd's units.
	Units string
	// Architecture is as Go calls it.
	Architecture string
}

// Program is one file of the payload.
type Program struct {
	Digest  string `json:"digest"`
	Version string `json:"version"`
}

// Lazy is a runtime whose images are mounted while they are fetched.
type Lazy struct {
	Handler, Snapshotter string
	// Images are the beginnings of names that are trusted.
	Images []string
	// Run is the folder of the sockets, Root that of the snapshots, Registries containerd's folder of registry hosts.
	Run, Root, Registries string
}

// Names of programs and services.
const (
	Runsc       = installed.Runsc
	Shim        = "containerd-shim-runsc-v1"
	Snapshotter = "rollbox-snapshotter"
	Checker     = "rollbox-node"
	Containerd  = "containerd"
	ServeUnit   = "rollbox-snapshotter"
	MountsUnit  = "rollbox-snapshotter-mounts"
	Systemd     = "systemd"
)

// Sockets of the two processes of the snapshotter.
func (l *Lazy) Sockets() (serve, mounts string) {
	return filepath.Join(l.Run, "snapshotter.sock"), filepath.Join(l.Run, "mounts.sock")
}

// Bin is the folder of programs.
func (w *Wanted) Bin() string { return filepath.Join(w.Folder, "bin") }

// ShimSettings is the file that the shim reads.
func (w *Wanted) ShimSettings() string { return filepath.Join(w.Folder, "etc/runsc.toml") }

// Services are those that have to run besides containerd.
func (w *Wanted) Services() []string {
	if w.Lazy == nil {
		return nil
	}
	return []string{MountsUnit, ServeUnit}
}

// Handlers are the runtimes, gVisor's first.
func (w *Wanted) Handlers() []string {
	if w.Lazy == nil {
		return []string{w.Handler}
	}
	return []string{w.Handler, w.Lazy.Handler}
}

// AdditionPath is the file of containerd's settings that is ours, beside the first one.
func AdditionPath(main string) string {
	return filepath.Join(filepath.Dir(main), "conf.d/rollbox.toml")
}

// content is what a file is to be: a text, or a program of the payload.
type content struct {
	mode    fs.FileMode
	text    []byte
	program string
	digest  string
}

func text(mode fs.FileMode, what string) content {
	return content{mode: mode, text: []byte(what), digest: Digest([]byte(what))}
}

// own are the files that are the installer's, without containerd's settings.
func (w *Wanted) own(supervisor string) map[string]content {
	files := map[string]content{w.ShimSettings(): text(0o644, w.shimSettings())}
	for _, name := range []string{Runsc, Shim, Checker} {
		files[filepath.Join(w.Bin(), name)] = w.program(name)
	}
	if w.Lazy == nil {
		return files
	}
	files[filepath.Join(w.Bin(), Snapshotter)] = w.program(Snapshotter)
	files[w.environment()] = text(0o644, w.Lazy.environment())
	if supervisor == Systemd {
		files[filepath.Join(w.Units, MountsUnit+".service")] = text(0o644, w.unit("mounts", "serves the files of lazily mounted images"))
		files[filepath.Join(w.Units, ServeUnit+".service")] = text(0o644, w.unit("serve", "answers containerd"))
	}
	return files
}

func (w *Wanted) program(name string) content {
	return content{mode: 0o755, program: name, digest: w.Payload[name].Digest}
}

func (w *Wanted) environment() string { return filepath.Join(w.Folder, "etc/snapshotter.env") }

// Paths are all files that an install may write, in the order in which it does.
func (w *Wanted) Paths(facts *Facts) []string {
	paths := slices.Sorted(maps.Keys(w.own(facts.Supervisor)))
	return append(paths, AdditionPath(facts.Main), facts.Main)
}

// shimSettings let setuid programs change the user, as runc does: what they reach is root of the sandbox's own kernel.
func (w *Wanted) shimSettings() string {
	return fmt.Sprintf(`binary_name = %q
root = %q

[runsc_config]
  platform = "systrap"
  allow-suid = "true"
`, filepath.Join(w.Bin(), Runsc), filepath.Join(w.Run, "runsc"))
}

func (l *Lazy) environment() string {
	serve, mounts := l.Sockets()
	lines := []string{"SOCKET=" + serve, "MOUNTS_SOCKET=" + mounts, "ROOT=" + l.Root, "REGISTRIES=" + l.Registries, "TRUSTED=" + strings.Join(l.Images, ",")}
	return "ROLLBOX_SNAPSHOTTER_" + strings.Join(lines, "\nROLLBOX_SNAPSHOTTER_") + "\n"
}

// unit lives as long as the node: sandboxes read their files through the one that serves the mounts. systemd would give it
// up, by default, after five ends within ten seconds.
func (w *Wanted) unit(verb, does string) string {
	return fmt.Sprintf(`[Unit]
Description=rollbox snapshotter: %s
Before=containerd.service
StartLimitIntervalSec=0

[Service]
EnvironmentFile=%s
ExecStart=%s %s
Restart=always
RestartSec=1
OOMScoreAdjust=-999

[Install]
WantedBy=multi-user.target
`, does, w.environment(), filepath.Join(w.Bin(), Snapshotter), verb)
}

// addition is what containerd's settings get.
func (w *Wanted) addition() *config.Addition {
	made := &config.Addition{
		Handler: w.Handler, Shim: filepath.Join(w.Bin(), Shim), Runsc: w.ShimSettings(), Platform: "linux/" + w.Architecture,
	}
	if w.Lazy != nil {
		serve, _ := w.Lazy.Sockets()
		made.Lazy = &config.Lazy{Handler: w.Lazy.Handler, Snapshotter: w.Lazy.Snapshotter, Socket: serve, Root: w.Lazy.Root}
	}
	return made
}
