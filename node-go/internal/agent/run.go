package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime/debug"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"

	"rollbox.dev/node/internal/containerd"
	"rollbox.dev/node/internal/images"
	"rollbox.dev/node/internal/mtls"
	"rollbox.dev/node/internal/problem"
	"rollbox.dev/node/internal/telemetry"
	"rollbox.dev/node/internal/wire"
)

const (
	// Calls that are served at once; progress of a prefetch is such a call.
	maxCalls = 2048
	// What a request may have; the longest is an image's name with credentials.
	maxRequestBytes = 256 << 10
	// A caller that has said nothing for so long is asked whether it is there.
	askAfter  = 60 * time.Second
	answersIn = 20 * time.Second
	// A client of ours asks no more often.
	askedEvery = 20 * time.Second
	shakesIn   = 10 * time.Second
	// Of the pod's grace period, behind that of calls.
	goesOnIn = 3 * time.Second
)

// Run serves until the context ends, and then lets calls go on for the grace period.
func Run(ctx context.Context, settings *Settings, log *slog.Logger) error {
	// What is garbage goes before the process is killed for it: what commits may know of files counts without it.
	debug.SetMemoryLimit(settings.Memory / 10 * 9)
	listener, err := net.Listen("tcp", settings.Listen)
	if err != nil {
		return err
	}
	return Serve(ctx, settings, listener, log)
}

// Serve is Run on a listener, which it closes.
func Serve(ctx context.Context, settings *Settings, listener net.Listener, log *slog.Logger) (err error) {
	defer func() { _ = listener.Close() }()
	configuration, err := mtls.Server(settings.TLS, settings.Client)
	if err != nil {
		return &SettingError{prefix + "TLS", settings.TLS, fmt.Sprintf("it holds ca.crt, tls.crt and tls.key (%v)", err)}
	}
	if err := inSight(ctx, settings, log); err != nil {
		return err
	}
	runtime, err := containerd.Open(settings.Containerd)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, runtime.Close()) }()
	use := images.NewUse()
	brought := images.NewPullMarks(runtime, settings.Namespace, log)
	offered := newService(settings, runtime, use, brought, log)
	counts := newMetrics()
	server := grpc.NewServer(
		grpc.Creds(credentials.NewTLS(configuration)),
		grpc.ConnectionTimeout(shakesIn),
		grpc.MaxRecvMsgSize(maxRequestBytes),
		grpc.MaxConcurrentStreams(maxCalls),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: askAfter, Timeout: answersIn}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: askedEvery, PermitWithoutStream: true}),
		grpc.ChainUnaryInterceptor(counts.unary, problem.Unary, limitUnary(maxCalls)),
		grpc.ChainStreamInterceptor(counts.stream, problem.Stream, limitStream(maxCalls)),
	)
	wire.RegisterNodeServer(server, offered)
	following, stop := context.WithCancel(ctx)
	defer stop()
	var owned sync.WaitGroup
	defer owned.Wait()
	owned.Go(func() { use.Follow(following, runtime, brought, log) })
	if settings.Metrics != "" {
		owned.Go(func() { counts.look(following, offered) })
		owned.Go(func() {
			if err := telemetry.Serve(following, settings.Metrics, counts.registry); err != nil {
				log.Error("metrics are not told", "address", settings.Metrics, "error", err)
			}
		})
	}
	if settings.Runsc != "" {
		owned.Go(func() { offered.commits.LetGo(following) })
	}
	owned.Go(func() {
		<-following.Done()
		end(server, offered, settings.Grace)
	})
	log.Info("node agent started", "node", settings.Node, "address", listener.Addr().String())
	err = server.Serve(listener)
	stop()
	return err
}

// end takes no new calls, waits for those under way and cuts off what is left after the grace period. Sandboxes that stand
// still for a commit go on before it returns.
func end(server *grpc.Server, offered *service, grace time.Duration) {
	offered.log.Info("node agent ends")
	// A pull takes as long as it takes, and the next agent's goes on where it stood.
	offered.puller.End()
	cut := time.AfterFunc(grace, server.Stop)
	defer cut.Stop()
	server.GracefulStop()
	offered.puller.Wait()
	going, cancel := context.WithTimeout(context.Background(), goesOnIn)
	defer cancel()
	offered.kernels.Wait(going)
}
