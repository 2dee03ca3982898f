// Command rollbox-node works on one node of a cluster.
//
//	rollbox-node agent    serves contract/node.proto to the control plane
//
// Its settings are in its environment (ROLLBOX_NODE_*). It exits with 64 for a bad setting.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"rollbox.dev/node/internal/agent"
)

const exitConfig = 64

func main() { os.Exit(run(os.Args[1:])) }

func run(arguments []string) int {
	if len(arguments) != 1 || arguments[0] != "agent" {
		fmt.Fprintln(os.Stderr, "rollbox-node: one argument is needed, what it is to do: agent")
		return exitConfig
	}
	settings, err := agent.Read(os.Getenv)
	if err == nil {
		log := slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: settings.Level}))
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
		defer stop()
		err = agent.Run(ctx, settings, log)
	}
	return status(err)
}

func status(err error) int {
	if err == nil {
		return 0
	}
	fmt.Fprintf(os.Stderr, "rollbox-node: %v\n", err)
	var setting *agent.SettingError
	if errors.As(err, &setting) {
		return exitConfig
	}
	return 1
}
