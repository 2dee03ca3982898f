// Command rollbox-node works on one node of a cluster.
//
//	rollbox-node agent                                  serves contract/node.proto to the control plane
//	rollbox-node install [--dry-run] [--json] [--stay]    puts gVisor, and lazy pulling where it is wanted, on the node
//	rollbox-node uninstall [--dry-run] [--json] [--stay]  leaves the node as it was before the first install
//	rollbox-node again                                  has an installer that stays try at once what has failed
//	rollbox-node peers                                  gives other nodes layers, and containerd those of others
//	rollbox-node in-gvisor                              exits with 0 in gVisor: what an install runs there, in
//	rollbox-node hold                                   a container of this, which does nothing
//
// Settings are environment variables: ROLLBOX_NODE_*, ROLLBOX_INSTALL_* and ROLLBOX_PEERS_*. It exits with 64 for a bad setting, with 3
// when an install is refused, and with 1 when it fails.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"rollbox.dev/node/internal/agent"
	"rollbox.dev/node/internal/install"
	"rollbox.dev/node/internal/install/node"
	"rollbox.dev/node/internal/install/plan"
	"rollbox.dev/node/internal/peers"
)

const (
	exitFailed  = 1
	exitRefused = 3
	exitConfig  = 64
)

func main() { os.Exit(run(os.Args[1:])) }

func run(arguments []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	switch {
	case len(arguments) == 1 && arguments[0] == "agent":
		return status(serve(ctx))
	case len(arguments) == 1 && arguments[0] == "peers":
		return status(give(ctx))
	case len(arguments) == 1 && arguments[0] == node.InGVisor:
		if node.IsGVisor() {
			return 0
		}
		return exitFailed
	case len(arguments) == 1 && arguments[0] == node.Hold:
		// Longer than any check, should nobody end it.
		time.Sleep(5 * time.Minute)
		return 0
	case len(arguments) > 0 && slices.Contains([]string{"install", "uninstall", "again"}, arguments[0]):
		return status(change(ctx, arguments))
	}
	fmt.Fprintln(os.Stderr, "rollbox-node: what it is to do is needed: agent, peers, install, uninstall or again")
	return exitConfig
}

func logAt(level slog.Level) *slog.Logger {
	return slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
}

func serve(ctx context.Context) error {
	settings, err := agent.Read(os.Getenv)
	if err != nil {
		return err
	}
	return agent.Run(ctx, settings, logAt(settings.Level))
}

func give(ctx context.Context) error {
	settings, err := peers.Read(os.Getenv)
	if err != nil {
		return err
	}
	return peers.Run(ctx, settings, logAt(settings.Level))
}

func change(ctx context.Context, arguments []string) error {
	work, err := install.ReadWork(arguments)
	if err != nil {
		return err
	}
	settings, err := install.Read(os.Getenv)
	if err != nil {
		return err
	}
	return install.Run(ctx, settings, work, os.Stdout, logAt(settings.Level))
}

func status(err error) int {
	if err == nil {
		return 0
	}
	fmt.Fprintf(os.Stderr, "rollbox-node: %v\n", err)
	var ofAgent *agent.SettingError
	var ofInstall *install.SettingError
	var ofPeers *peers.SettingError
	var refused *plan.Refusal
	switch {
	case errors.As(err, &ofAgent), errors.As(err, &ofInstall), errors.As(err, &ofPeers):
		return exitConfig
	case errors.As(err, &refused):
		return exitRefused
	}
	return exitFailed
}
