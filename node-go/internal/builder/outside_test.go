package builder

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func here(t *testing.T) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return listener
}

func dialled(t *testing.T, address string) *net.TCPConn {
	t.Helper()
	made, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = made.Close() })
	if err := made.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return made.(*net.TCPConn)
}

// taken asks a builder for the next connection of a step, as the control plane does.
func taken(t *testing.T, server *httptest.Server) (*net.TCPConn, *bufio.Reader) {
	t.Helper()
	made := dialled(t, server.Listener.Addr().String())
	ask := "POST /connections HTTP/1.1\r\nHost: builder\r\nAuthorization: Bearer " + token + "\r\nContent-Length: 0\r\n\r\n"
	if _, err := io.WriteString(made, ask); err != nil {
		t.Fatal(err)
	}
	return made, bufio.NewReader(made)
}

func head(t *testing.T, from *bufio.Reader) string {
	t.Helper()
	var text strings.Builder
	for {
		line, err := from.ReadString('\n')
		if err != nil {
			t.Fatal(text.String(), err)
		}
		if text.WriteString(line); line == "\r\n" {
			return text.String()
		}
	}
}

func said(t *testing.T, from io.Reader) string {
	t.Helper()
	text, err := io.ReadAll(from)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func sent(t *testing.T, to *net.TCPConn, text string) {
	t.Helper()
	if _, err := io.WriteString(to, text); err != nil {
		t.Fatal(err)
	}
	if err := to.CloseWrite(); err != nil {
		t.Fatal(err)
	}
}

// relayed is a server whose relay listens at an address.
func relayed(t *testing.T, script string) (*httptest.Server, string) {
	t.Helper()
	settings := Settings{Token: token, State: t.TempDir(), MostBytes: 1 << 60, Idle: time.Hour}
	if err := os.MkdirAll(filepath.Join(settings.State, "rollbox"), 0o700); err != nil {
		t.Fatal(err)
	}
	made, steps := NewServer(settings, []string{"/bin/sh", "-c", script, "client"}, endNothing), here(t)
	go func() { _ = made.Relay(t.Context(), steps) }()
	server := httptest.NewServer(made.Handler())
	t.Cleanup(server.Close)
	return server, steps.Addr().String()
}

func TestConnectionsOfStepsAreHandedOver(t *testing.T) {
	server, relay := relayed(t, "exit 0")
	// One by one, each with its own bytes, and each half closed by itself.
	for _, text := range []string{"one", "two"} {
		control, from := taken(t, server)
		step := dialled(t, relay)
		sent(t, step, "asks "+text)
		if told := head(t, from); !strings.HasPrefix(told, "HTTP/1.1 101 ") {
			t.Fatal(told)
		}
		if got := said(t, from); got != "asks "+text {
			t.Errorf("%q came", got)
		}
		sent(t, control, "has "+text)
		if got := said(t, step); got != "has "+text {
			t.Errorf("the step got %q", got)
		}
	}
	if status, _ := asked(t, http.MethodPost, server.URL+"/connections", "another", nil); status != http.StatusUnauthorized {
		t.Errorf("another one that asks: %d", status)
	}
}

func TestAConnectionThatNobodyTakesIsClosed(t *testing.T) {
	made, over := newOutside(), make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	listener := here(t)
	go func() { over <- made.serve(ctx, listener) }()
	step := dialled(t, listener.Addr().String())
	cancel()
	if got := said(t, step); got != "" {
		t.Errorf("%q", got)
	}
	if _, err := made.dial(ctx, "", ""); err == nil {
		t.Error("there is a way out")
	}
	_ = listener.Close()
	if err := <-over; !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
}

func TestWhatRunsApartReachesNothingOfThisMachine(t *testing.T) {
	ours, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil {
		t.Skip(err)
	}
	machine, ended := here(t).Addr().String(), make(chan struct{})
	var theirs string
	var reached error
	err = apart(func() error {
		theirs, _ = os.Readlink("/proc/thread-self/ns/net")
		made, err := net.Dial("tcp", machine)
		if err == nil {
			_ = made.Close()
		}
		reached = err
		return nil
	}, func() { close(ended) })
	if errors.Is(err, os.ErrPermission) {
		t.Skip(err)
	}
	if err != nil || reached == nil || theirs == ours {
		t.Errorf("%v: it is in %s, as this, and reaches %s: %v", err, theirs, machine, reached)
	}
	<-ended
	broken := errors.New("broken")
	if err := apart(func() error { return broken }, func() { t.Error("the rest ran") }); !errors.Is(err, broken) {
		t.Error(err)
	}
	dialled(t, machine)
}

func TestForwardCarriesBothWays(t *testing.T) {
	server, free := here(t), here(t)
	_ = free.Close()
	go func() {
		for {
			made, err := server.Accept()
			if err != nil {
				return
			}
			text, _ := io.ReadAll(made)
			_, _ = io.WriteString(made, "got "+string(text))
			_ = made.Close()
		}
	}()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Forward(ctx, free.Addr().String(), server.Addr().String()) }()
	var step *net.TCPConn
	for step == nil {
		if made, err := net.Dial("tcp", free.Addr().String()); err == nil {
			step = made.(*net.TCPConn)
		}
	}
	sent(t, step, "words")
	if got := said(t, step); got != "got words" {
		t.Errorf("%q", got)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
