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

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"

	"rollbox.dev/node/internal/gate"
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
	private, account, err := ofRegistry(settings)
	if err != nil {
		return err
	}
	copier := newCopier(settings, private, account, mirror.NewMetrics(registry))
	commits, err := newGate(settings, private, account, gate.NewMetrics(registry))
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
	return serve(server, listener, commits, beside(settings.Metrics, registry))
}

// ofRegistry returns the way to the private registry, and the account.
func ofRegistry(settings mirror.Settings) (http.RoundTripper, authn.Authenticator, error) {
	private, err := mirror.Private(settings.RegistryCA)
	if err != nil {
		return nil, nil, &mirror.SettingError{Variable: "ROLLBOX_MIRROR_REGISTRY_CA", Value: settings.RegistryCA, Rule: err.Error()}
	}
	account, err := mirror.Account(settings.RegistryAccount)
	if err != nil {
		return nil, nil, &mirror.SettingError{Variable: "ROLLBOX_MIRROR_REGISTRY_ACCOUNT_FILE", Value: settings.RegistryAccount, Rule: err.Error()}
	}
	return private, account, nil
}

// newGate returns the server of agents' commits; nil: they go elsewhere.
func newGate(
	settings mirror.Settings, private http.RoundTripper, account authn.Authenticator, metrics *gate.Metrics,
) (*http.Server, error) {
	if settings.Commits == "" {
		return nil, nil
	}
	handler, err := gate.New(settings.Registry, settings.CommitsCertificate, account, private, metrics)
	if err != nil {
		return nil, &mirror.SettingError{Variable: "ROLLBOX_MIRROR_COMMITS_CERTIFICATE", Value: settings.CommitsCertificate, Rule: err.Error()}
	}
	identity, err := mtls.Anyone(settings.TLSFolder)
	if err != nil {
		return nil, &mirror.SettingError{Variable: "ROLLBOX_MIRROR_TLS_FOLDER", Value: settings.TLSFolder, Rule: err.Error()}
	}
	return &http.Server{
		Addr: settings.Commits, Handler: handler, TLSConfig: identity, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute,
	}, nil
}

func newCopier(settings mirror.Settings, private http.RoundTripper, account authn.Authenticator, metrics *mirror.Metrics) *mirror.Copier {
	return mirror.NewCopier(mirror.Options{
		Registry:        settings.Registry,
		Credentials:     account,
		Private:         private,
		Upstream:        mirror.NewRetryAfter(mirror.NewGuard(settings.PlainRegistries).Transport(settings.Stall)),
		PlainRegistries: settings.PlainRegistries,
		CopiesAtOnce:    settings.Copies,
		LayersAtOnce:    settings.Layers,
		MaxImageBytes:   settings.MaxImageBytes,
		Forms:           map[wire.ImageForm]mirror.Converter{wire.ImageForm_ESTARGZ: mirror.ESTARGZ(settings.Memory/2, settings.Scratch)},
		Folder:          settings.Folder,
		Scratch:         settings.Scratch,
		Metrics:         metrics,
	})
}

func beside(address string, registry *prometheus.Registry) *http.Server {
	mux := http.NewServeMux()
	mux.Handle("/metrics", telemetry.Handler(registry))
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	return &http.Server{Addr: address, Handler: mux, ReadHeaderTimeout: 5 * time.Second}
}

func serve(server *grpc.Server, listener net.Listener, commits, beside *http.Server) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return server.Serve(listener) })
	group.Go(func() error { return unlessClosed(beside.ListenAndServe()) })
	if commits != nil {
		group.Go(func() error { return unlessClosed(commits.ListenAndServeTLS("", "")) })
		group.Go(func() error {
			<-ctx.Done()
			within, cancel := context.WithTimeout(context.Background(), drain)
			defer cancel()
			if commits.Shutdown(within) != nil {
				return commits.Close()
			}
			return nil
		})
		slog.Info("serving commits", "address", commits.Addr)
	}
	group.Go(func() error {
		<-ctx.Done()
		slog.Info("stopping")
		timer := time.AfterFunc(drain, server.Stop)
		defer timer.Stop()
		server.GracefulStop()
		return beside.Close()
	})
	slog.Info("serving", "address", listener.Addr().String(), "metrics", beside.Addr)
	return group.Wait()
}

func unlessClosed(err error) error {
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}
