// The builder: makes images from Dockerfiles by BuildKit, for the control plane that has started its sandbox. It is
// configured by environment variables (internal/builder/settings.go). Exit status: 64 for a bad setting.
//
// As `rollbox-builder forward FROM TO` it carries what connects to one address to another, and nothing else.
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"rollbox.dev/node/internal/builder"
)

const (
	exitConfig   = 64
	forwardWords = 4
)

func main() {
	do := run
	if len(os.Args) == forwardWords && os.Args[1] == "forward" {
		do = func() error { return forwarding(os.Args[2], os.Args[3]) }
	}
	if err := do(); err != nil {
		fmt.Fprintln(os.Stderr, "rollbox-builder:", err)
		var setting *builder.SettingError
		if errors.As(err, &setting) {
			os.Exit(exitConfig)
		}
		os.Exit(1)
	}
}

func forwarding(from, to string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	return builder.Forward(ctx, from, to)
}

// run serves until nobody asks any more, or BuildKit has ended.
func run() error {
	settings, err := builder.ReadSettings(os.LookupEnv)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	daemon, err := builder.Begin(ctx, settings)
	if err != nil {
		return err
	}
	server := builder.NewServer(settings, builder.Client(), daemon.EndOthers)
	listener, err := net.Listen("tcp", settings.Listen)
	if err != nil {
		return err
	}
	answering := &http.Server{Handler: server.Handler(), ReadHeaderTimeout: 10 * time.Second}
	defer func() { _ = answering.Close() }()
	failed := make(chan error, 2)
	go func() { failed <- answering.Serve(listener) }()
	go func() { failed <- server.Relay(ctx, daemon.Relay()) }()
	look := time.NewTicker(time.Second)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			return err
		case err := <-daemon.Ended():
			return fmt.Errorf("buildkitd has ended: %w", err)
		case <-look.C:
			if server.Idle() {
				return nil
			}
		}
	}
}
