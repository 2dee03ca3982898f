package mirror

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"time"
)

var (
	errForbidden = errors.New("no address that registries are asked at")
	errStalled   = errors.New("too little was received for too long")
)

// leastRate is how many bytes a second a body has to bring, on average over the time after which one that brings nothing
// is given up: a registry that drips holds up others' copies as one that is silent does.
const leastRate = 16 << 10

// Addresses of clouds' metadata services that are not link-local.
var metadata = map[netip.Addr]bool{
	netip.MustParseAddr("fd00:ec2::254"):   true,
	netip.MustParseAddr("100.100.100.200"): true,
	netip.MustParseAddr("168.63.129.16"):   true,
}

// Guard decides where upstream registries are asked.
type Guard struct {
	plain map[string]bool // host or host:port, by http
	local map[string]bool // their hosts, which may be loopback
}

// NewGuard returns a guard that lets the named registries be asked by http, and at loopback addresses.
func NewGuard(plain []string) *Guard {
	guard := &Guard{plain: map[string]bool{}, local: map[string]bool{}}
	for _, registry := range plain {
		guard.plain[registry] = true
		host, _, err := net.SplitHostPort(registry)
		if err != nil {
			host = registry
		}
		guard.local[host] = true
	}
	return guard
}

// Allowed reports whether an address may be connected to for this host.
func (g *Guard) Allowed(address netip.Addr, host string) bool {
	address = address.Unmap()
	if address.IsLinkLocalUnicast() || address.IsMulticast() || address.IsUnspecified() || metadata[address] {
		return false
	}
	return !address.IsLoopback() || g.local[host]
}

// Transport returns a transport that asks upstream registries; one that sends nothing for stall, or too slowly
// for as long, is given up.
func (g *Guard) Transport(stall time.Duration) http.RoundTripper {
	return &guarded{guard: g, stall: stall, next: &http.Transport{
		DialContext:           g.dial,
		ForceAttemptHTTP2:     true,
		MaxIdleConnsPerHost:   8,
		MaxConnsPerHost:       32,
		IdleConnTimeout:       time.Minute,
		TLSHandshakeTimeout:   10 * time.Second,
		ResponseHeaderTimeout: stall,
		// A compressed answer would turn a bounded body into an unbounded one.
		DisableCompression: true,
	}}
}

// The address is checked after it was resolved, so a name that changes between two look-ups changes nothing.
func (g *Guard) dial(ctx context.Context, network, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	dialer := net.Dialer{Timeout: 5 * time.Second, Control: func(_, found string, _ syscall.RawConn) error {
		at, err := netip.ParseAddrPort(found)
		if err != nil {
			return err
		}
		if !g.Allowed(at.Addr(), host) {
			return fmt.Errorf("%s: %w", at.Addr(), errForbidden)
		}
		return nil
	}}
	return dialer.DialContext(ctx, network, address)
}

type guarded struct {
	guard *Guard
	stall time.Duration
	next  http.RoundTripper
}

func (t *guarded) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.URL.Scheme != "https" && !t.guard.plain[request.URL.Host] {
		return nil, fmt.Errorf("%s without TLS: %w", request.URL.Host, errForbidden)
	}
	ctx, cancel := context.WithCancelCause(request.Context())
	response, err := t.next.RoundTrip(request.WithContext(ctx))
	if err != nil {
		cancel(nil)
		return nil, err
	}
	response.Body = &watched{body: response.Body, ctx: ctx, cancel: cancel, stall: t.stall}
	return response, nil
}

// watched is a body whose reads end when too little comes for too long; time between reads does not count.
type watched struct {
	body   io.ReadCloser
	ctx    context.Context
	cancel context.CancelCauseFunc
	stall  time.Duration

	waited time.Duration
	got    int64
}

func (w *watched) Read(into []byte) (int, error) {
	timer := time.AfterFunc(w.stall, func() { w.cancel(errStalled) })
	begun := time.Now()
	n, err := w.body.Read(into)
	timer.Stop()
	if err != nil && errors.Is(context.Cause(w.ctx), errStalled) {
		err = errStalled
	}
	if err == nil && w.drips(time.Since(begun), n) {
		w.cancel(errStalled)
		err = errStalled
	}
	return n, err
}

// drips reports whether the reads of the last while have brought too little.
func (w *watched) drips(waited time.Duration, bytes int) bool {
	w.waited += waited
	w.got += int64(bytes)
	if w.waited < w.stall {
		return false
	}
	slow := float64(w.got) < leastRate*w.waited.Seconds()
	w.waited, w.got = 0, 0
	return slow
}

func (w *watched) Close() error {
	w.cancel(nil)
	return w.body.Close()
}
