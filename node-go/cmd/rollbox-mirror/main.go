// The mirror: copies images into the private registry when the control plane asks for them. It is configured by
// environment variables (internal/mirror/settings.go). Exit status: 64 for a bad setting.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"

	"rollbox.dev/node/internal/mirror"
	"rollbox.dev/node/internal/mtls"
	"rollbox.dev/node/internal/problem"
	"rollbox.dev/node/internal/telemetry"
	"rollbox.dev/node/internal/wire"
)

const (
	exitConfig = 64
	// Copies under way go on for so long when the process is to end; their callers ask the next one for the rest.
	drain = 10 * time.Second
)

func main() {
	slog.SetDefault(slog.New(slog.NewJSONHandler(os.Stderr, nil)))
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "rollbox-mirror:", err)
		var setting *mirror.SettingError
		if errors.As(err, &setting) {
			os.Exit(exitConfig)
		}
		os.Exit(1)
	}
}

func run() error {
	settings, err := mirror.ReadSettings(os.LookupEnv)
	if err != nil {
		return err
	}
	// What is garbage goes before the process is killed for it.
	debug.SetMemoryLimit(settings.Memory / 10 * 8)
	registry := prometheus.NewRegistry()
	copier, err := newCopier(settings, mirror.NewMetrics(registry))
	if err != nil {
		return err
	}
	identity, err := mtls.Server(settings.TLSFolder, settings.Client)
	if err != nil {
		return &mirror.SettingError{Variable: "ROLLBOX_MIRROR_TLS_FOLDER", Value: settings.TLSFolder, Rule: err.Error()}
	}
	listener, err := net.Listen("tcp", settings.Listen)
	if err != nil {
		return err
	}
	server := grpc.NewServer(
		grpc.Creds(credentials.NewTLS(identity)),
		grpc.ChainUnaryInterceptor(problem.Unary),
		grpc.ChainStreamInterceptor(problem.Stream),
		grpc.MaxConcurrentStreams(4096),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 30 * time.Second, Timeout: 10 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
	)
	wire.RegisterMirrorServer(server, &mirror.Server{Copier: copier})
	return serve(server, listener, settings.Metrics, registry)
}

func newCopier(settings mirror.Settings, metrics *mirror.Metrics) (*mirror.Copier, error) {
	private, err := mirror.Private(settings.RegistryCA)
	if err != nil {
		return nil, &mirror.SettingError{Variable: "ROLLBOX_MIRROR_REGISTRY_CA", Value: settings.RegistryCA, Rule: err.Error()}
	}
	account, err := mirror.Account(settings.RegistryAccount)
	if err != nil {
		return nil, &mirror.SettingError{Variable: "ROLLBOX_MIRROR_REGISTRY_ACCOUNT_FILE", Value: settings.RegistryAccount, Rule: err.Error()}
	}
	return mirror.NewCopier(mirror.Options{
		Registry:        settings.Registry,
		Credentials:     account,
		Private:         private,
		Upstream:        mirror.NewPatience(mirror.NewGuard(settings.PlainRegistries).Transport(settings.Stall)),
		PlainRegistries: settings.PlainRegistries,
		CopiesAtOnce:    settings.Copies,
		LayersAtOnce:    settings.Layers,
		MaxImageBytes:   settings.MaxImageBytes,
		Forms:           map[wire.ImageForm]mirror.Converter{wire.ImageForm_ESTARGZ: mirror.ESTARGZ(settings.Memory/2, settings.Scratch)},
		Folder:          settings.Folder,
		Scratch:         settings.Scratch,
		Metrics:         metrics,
	}), nil
}

func serve(server *grpc.Server, listener net.Listener, metrics string, registry *prometheus.Registry) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	mux := http.NewServeMux()
	mux.Handle("/metrics", telemetry.Handler(registry))
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	beside := &http.Server{Addr: metrics, Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return server.Serve(listener) })
	group.Go(func() error {
		if err := beside.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	group.Go(func() error {
		<-ctx.Done()
		slog.Info("stopping")
		timer := time.AfterFunc(drain, server.Stop)
		defer timer.Stop()
		server.GracefulStop()
		return beside.Close()
	})
	slog.Info("serving", "address", listener.Addr().String(), "metrics", metrics)
	return group.Wait()
}
