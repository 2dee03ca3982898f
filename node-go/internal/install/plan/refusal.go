package plan

import (
	"errors"
	"fmt"
	"strings"

	"rollbox.dev/node/internal/install/config"
)

// Refusal is why nothing is done: a code, and a sentence that says what to do.
type Refusal struct {
	Code   string `json:"code"`
	Detail string `json:"detail"`
}

func (r *Refusal) Error() string { return r.Code + ": " + r.Detail }

// The codes.
const (
	KernelTooOld     = "kernel_too_old"
	ContainerdTooOld = "containerd_too_old"
	ConfigVersion    = "config_version_unknown"
	ConfigUnread     = "config_not_read"
	HandlerTaken     = "handler_taken"
	LiveSandboxes    = "live_sandboxes"
)

func refuse(code, format string, values ...any) *Refusal {
	return &Refusal{code, fmt.Sprintf(format, values...)}
}

func checkVersions(facts *Facts) error {
	if kernel, known := read(facts.Kernel); !known || kernel.below(kernelFloor) {
		return refuse(KernelTooOld, "the kernel is %q; %v or later is needed", facts.Kernel, kernelFloor)
	}
	if containerd, known := read(facts.Containerd); !known || containerd.below(containerdFloor) {
		return refuse(ContainerdTooOld, "containerd is %q; %v or later is needed", facts.Containerd, containerdFloor)
	}
	return nil
}

func settingsOf(facts *Facts, wanted *Wanted) (*config.Settings, error) {
	if len(facts.Unseen) > 0 {
		return nil, refuse(ConfigUnread, "%s imports %s, which the installer does not see: move it to that folder, or import nothing else", facts.Main, strings.Join(facts.Unseen, ", "))
	}
	settings, err := config.Read(facts.Files)
	if wrong := (*config.VersionError)(nil); errors.As(err, &wrong) {
		return nil, refuse(ConfigVersion, "%v: `containerd config migrate` writes the newest that this containerd knows", err)
	}
	if err != nil {
		return nil, refuse(ConfigUnread, "%v", err)
	}
	if wanted.Lazy != nil && settings.Version < 3 {
		return nil, refuse(ConfigVersion, "%s has version %d, and lazy pulling needs 3: `containerd config migrate` writes it", facts.Main, settings.Version)
	}
	return settings, checkTaken(settings, wanted)
}

// checkTaken refuses to change a runtime or a snapshotter that somebody else has put there.
func checkTaken(settings *config.Settings, wanted *Wanted) error {
	for _, handler := range wanted.Handlers() {
		if settings.HasHandler(handler) {
			return refuse(HandlerTaken, "containerd has a runtime %q of somebody else: name another handler (runtimeClass.handler, lazyPulling.handler), or take that one away", handler)
		}
	}
	if wanted.Lazy != nil && settings.HasSnapshotter(wanted.Lazy.Snapshotter) {
		return refuse(HandlerTaken, "containerd has a proxy plugin %q of somebody else: take it away", wanted.Lazy.Snapshotter)
	}
	return nil
}

// CheckLive refuses where anything runs in gVisor: what is written replaces its programs, and containerd is started anew.
func CheckLive(live []string) error {
	const most = 5
	if len(live) == 0 {
		return nil
	}
	shown := live[:min(len(live), most)]
	return refuse(LiveSandboxes, "%d pods run in gVisor on this node (%s): drain it first (kubectl drain NODE --ignore-daemonsets), or wait until they have ended", len(live), strings.Join(shown, ", "))
}
