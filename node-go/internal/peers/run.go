package peers

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"

	"rollbox.dev/node/internal/avoid"
	"rollbox.dev/node/internal/mtls"
)

const (
	// How often it is looked who takes part, and at the latest how often a node says what it has.
	lookForMembers = 30 * time.Second
	announceEvery  = 10 * time.Minute
	settleFor      = 10 * time.Second
	// Requests of containerd at the same time; it has a few for each image that it pulls.
	maxRequests = 512
	headersIn   = 10 * time.Second
)

// Run serves until the context ends.
func Run(ctx context.Context, settings *Settings, log *slog.Logger) error {
	peer, err := net.Listen("tcp", settings.Self)
	if err != nil {
		return err
	}
	own, err := net.Listen("tcp", settings.Local)
	if err != nil {
		return errors.Join(err, peer.Close())
	}
	return Serve(ctx, settings, peer, own, log)
}

// Serve is Run on listeners, which it closes: one for other nodes, one for this node's containerd.
func Serve(ctx context.Context, settings *Settings, peer, own net.Listener, log *slog.Logger) error {
	defer func() { _ = peer.Close(); _ = own.Close() }()
	identity, err := mtls.ServerOf(settings.TLS, settings.Name, "http/1.1")
	if err != nil {
		return &SettingError{prefix + "TLS", settings.TLS, "it holds ca.crt, tls.crt and tls.key (" + err.Error() + ")"}
	}
	caller, err := newCaller(settings.TLS, settings.Name)
	if err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	group, ctx := errgroup.WithContext(ctx)
	counts, has := newCounts(registry), store{settings.Content}
	known, kept := newMembers(settings.Self, named(settings.Members)), newTracker(time.Now)
	finding := &fetcher{
		self: settings.Self, store: has, tracker: kept, members: known, caller: caller, counts: counts, log: log, ctx: ctx,
		left: avoid.New(maxTracked, time.Now), arriving: map[string]bool{}, told: map[string]string{},
	}
	defer finding.running.Wait()
	forNodes := &server{has, kept, known, counts, make(chan struct{}, settings.Sends)}
	forContainerd := &local{finding, settings.Token, settings.Without, make(chan struct{}, maxRequests)}
	serve(ctx, group, tls.NewListener(peer, identity), forNodes.routes(), log)
	serve(ctx, group, own, forContainerd, log)
	if settings.Metrics != "" {
		listener, err := net.Listen("tcp", settings.Metrics)
		if err != nil {
			return err
		}
		serve(ctx, group, listener, promhttp.HandlerFor(registry, promhttp.HandlerOpts{}), log)
	}
	changed := make(chan struct{}, 1)
	group.Go(func() error { follow(ctx, known, changed, log); return nil })
	group.Go(func() error { announce(ctx, finding, changed, log); return nil })
	log.Info("nodes give one another layers", "self", settings.Self, "containerd asks at", settings.Local)
	return group.Wait()
}

func serve(ctx context.Context, group *errgroup.Group, listener net.Listener, handler http.Handler, log *slog.Logger) {
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: headersIn, IdleTimeout: 2 * time.Minute,
		// Whoever connects without a certificate would fill the log.
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	group.Go(func() error {
		stop := context.AfterFunc(ctx, func() { _ = server.Close() })
		defer stop()
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
}

// follow looks who takes part.
func follow(ctx context.Context, known *members, changed chan<- struct{}, log *slog.Logger) {
	for ctx.Err() == nil {
		now, err := known.look(ctx)
		if err != nil && ctx.Err() == nil {
			log.Info("the other nodes are not known", "error", err)
		}
		if now {
			select {
			case changed <- struct{}{}:
			default:
			}
		}
		pause(ctx, lookForMembers, nil)
	}
}

// announce says what this node has: all of it now and then, and when nodes have come or gone what others keep now.
func announce(ctx context.Context, finding *fetcher, changed <-chan struct{}, log *slog.Logger) {
	for all := true; ctx.Err() == nil; {
		if err := finding.announce(all); err != nil {
			log.Warn("what this node has is not known", "error", err)
		}
		all = pause(ctx, announceEvery, changed)
		if !all {
			// Nodes come and go in numbers: one look at all of them.
			pause(ctx, settleFor, nil)
		}
	}
}

// pause waits about so long, so that not all nodes do the same at the same moment; false: something came before.
func pause(ctx context.Context, long time.Duration, something <-chan struct{}) bool {
	timer := time.NewTimer(long/2 + rand.N(long))
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-something:
		return false
	case <-timer.C:
	}
	return true
}
