package builder

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

const (
	// relay is where the steps of a build with a network find a way out, as the commands of a sandbox do.
	relay = "127.0.0.1:3128"
	// How long a connection of a step waits for the control plane to take it.
	takenWithin = 20 * time.Second
	handed      = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: rollbox-connection\r\n\r\n"
)

// outside hands the connections of steps to whoever asks for them: the control plane, which carries them on. Nothing in
// this pod dials anything.
type outside struct{ waiting chan net.Conn }

func newOutside() *outside { return &outside{make(chan net.Conn)} }

// serve takes connections until the listener is closed. One after the other: what waits behind it waits in the socket.
func (o *outside) serve(ctx context.Context, listener net.Listener) error {
	for {
		made, err := listener.Accept()
		if err != nil {
			return err
		}
		o.offer(ctx, made)
	}
}

// dial returns a connection as a step's.
func (o *outside) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	if !o.offer(ctx, theirs) {
		return nil, errors.New("there is no way out of this builder")
	}
	return ours, nil
}

// offer has a connection taken, or closes it.
func (o *outside) offer(ctx context.Context, made net.Conn) bool {
	late := time.NewTimer(takenWithin)
	defer late.Stop()
	select {
	case o.waiting <- made:
		return true
	case <-late.C:
	case <-ctx.Done():
	}
	_ = made.Close()
	return false
}

// give answers with the next connection of a step, once there is one.
func (o *outside) give(w http.ResponseWriter, r *http.Request) {
	select {
	case <-r.Context().Done():
	case made := <-o.waiting:
		defer func() { _ = made.Close() }()
		taken, ahead, err := http.NewResponseController(w).Hijack()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		defer func() { _ = taken.Close() }()
		if _, err := io.WriteString(taken, handed); err == nil {
			carry(made, taken, ahead)
		}
	}
}

// carry moves bytes both ways until both are over; toFirst has what the second one has sent.
func carry(first, second net.Conn, toFirst io.Reader) {
	var both sync.WaitGroup
	move := func(to net.Conn, from io.Reader) {
		_, err := io.Copy(to, from)
		if half, ok := to.(interface{ CloseWrite() error }); ok && err == nil {
			_ = half.CloseWrite()
			return
		}
		// What is broken in one direction is of no use in the other.
		_ = errors.Join(first.Close(), second.Close())
	}
	both.Go(func() { move(first, toFirst) })
	both.Go(func() { move(second, first) })
	both.Wait()
}

// Forward carries what connects to one address to another one. It runs in the sandbox whose network the steps of a build
// have: its sidecar, which reaches any port there, reaches the relay's for nobody.
func Forward(ctx context.Context, from, to string) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", from)
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { _ = listener.Close() })
	for {
		made, err := listener.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		go func() {
			defer func() { _ = made.Close() }()
			if on, err := (&net.Dialer{}).DialContext(ctx, "tcp", to); err == nil {
				defer func() { _ = on.Close() }()
				carry(made, on, on)
			}
		}()
	}
}
