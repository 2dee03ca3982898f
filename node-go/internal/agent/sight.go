package agent

import (
	"context"
	"log/slog"
	"time"

	"rollbox.dev/node/internal/containerd"
)

const dialsIn = 5 * time.Second

// inSight refuses to work where the node's processes have no numbers: no kernel could be killed there. A containerd that
// is away is waited for by the calls that need it.
func inSight(ctx context.Context, settings *Settings, log *slog.Logger) error {
	ctx, cancel := context.WithTimeout(ctx, dialsIn)
	defer cancel()
	pid, err := containerd.Listener(ctx, settings.Containerd)
	if err != nil {
		log.Warn("containerd does not answer", "socket", settings.Containerd, "error", err)
		return nil
	}
	if pid == 0 {
		rule := "its containerd has to be a process in the pid namespace of this agent: set hostPID: true for the agent's pod"
		return &SettingError{prefix + "CONTAINERD", settings.Containerd, rule}
	}
	return nil
}
