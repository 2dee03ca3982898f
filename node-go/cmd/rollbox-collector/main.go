// The collector: gives back the room of what no image of the private registry has any more, when the control plane asks
// for it. It is configured by environment variables (internal/collector/settings.go). Exit status: 64 for a bad setting.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"

	"rollbox.dev/node/internal/accounts"
	"rollbox.dev/node/internal/collector"
	"rollbox.dev/node/internal/mtls"
	"rollbox.dev/node/internal/problem"
	"rollbox.dev/node/internal/wire"
)

const (
	exitConfig = 64
	// A collection under way is broken off then; the next one goes on with it.
	drain = 5 * time.Second
)

func main() {
	slog.SetDefault(slog.New(slog.NewJSONHandler(os.Stderr, nil)))
	if err := chosen(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "rollbox-collector:", err)
		var setting *collector.SettingError
		if errors.As(err, &setting) {
			os.Exit(exitConfig)
		}
		os.Exit(1)
	}
}

func chosen(words []string) error {
	switch {
	case len(words) == 0:
		return run()
	case len(words) == 3 && words[0] == "accounts":
		return accounts.Write(words[1], words[2])
	default:
		return fmt.Errorf("usage: rollbox-collector [accounts FROM TO]")
	}
}

func run() error {
	settings, err := collector.ReadSettings(os.LookupEnv)
	if err != nil {
		return err
	}
	identity, err := mtls.Server(settings.TLSFolder, settings.Client)
	if err != nil {
		return &collector.SettingError{Variable: "ROLLBOX_COLLECTOR_TLS_FOLDER", Value: settings.TLSFolder, Rule: err.Error()}
	}
	made, err := collector.New(collector.Options{
		Folder: settings.Folder, Capacity: settings.Capacity, Usual: settings.Usual, Urgent: settings.Urgent, Log: slog.Default(),
	})
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", settings.Listen)
	if err != nil {
		return err
	}
	server := grpc.NewServer(
		grpc.Creds(credentials.NewTLS(identity)),
		grpc.ChainUnaryInterceptor(problem.Unary),
		grpc.ChainStreamInterceptor(problem.Stream),
		grpc.MaxConcurrentStreams(256),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 30 * time.Second, Timeout: 10 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
	)
	wire.RegisterCollectorServer(server, &collector.Server{Collector: made})
	return serve(server, listener, made)
}

func serve(server *grpc.Server, listener net.Listener, made *collector.Collector) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	go made.Measure(ctx)
	go func() {
		if err := made.Recover(ctx); err != nil && ctx.Err() == nil {
			slog.Warn("what was put aside before is judged by the next collection", "error", err)
		}
	}()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		<-ctx.Done()
		slog.Info("stopping")
		timer := time.AfterFunc(drain, server.Stop)
		defer timer.Stop()
		server.GracefulStop()
	}()
	slog.Info("serving", "address", listener.Addr().String())
	err := server.Serve(listener)
	stop()
	<-ended
	return err
}
