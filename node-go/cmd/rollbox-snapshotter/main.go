// rollbox-snapshotter mounts image layers on a node while they are still being fetched.
//
//	rollbox-snapshotter serve     answers containerd
//	rollbox-snapshotter mounts    serves the files; outlives the other
//	rollbox-snapshotter check     exits with 0 when both do their work
//
// Settings are environment variables ROLLBOX_SNAPSHOTTER_*; the exit status is 64 when one is invalid.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"rollbox.dev/node/internal/snapshotter"
)

const (
	exitFailed  = 1
	exitUsage   = 2
	exitSetting = 64
)

func main() { os.Exit(run(os.Args[1:])) }

func run(arguments []string) int {
	verbs := map[string]func(context.Context, *snapshotter.Settings) error{
		"serve": snapshotter.Serve, "mounts": snapshotter.Mounts, "check": snapshotter.Check,
	}
	if len(arguments) != 1 || verbs[arguments[0]] == nil {
		fmt.Fprintln(os.Stderr, "usage: rollbox-snapshotter serve|mounts|check")
		return exitUsage
	}
	settings, err := snapshotter.Read(os.Getenv)
	if err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
		defer stop()
		err = verbs[arguments[0]](ctx, settings)
	}
	if err == nil {
		return 0
	}
	fmt.Fprintln(os.Stderr, "rollbox-snapshotter:", err)
	if wrong := (*snapshotter.SettingError)(nil); errors.As(err, &wrong) {
		return exitSetting
	}
	return exitFailed
}
