package containerd

import (
	"context"
	"net"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
)

func listening(t *testing.T) (*net.UnixListener, string) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "a.sock")
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return listener, socket
}

func TestAProcessThatServesAnswersWhateverItServes(t *testing.T) {
	listener, socket := listening(t)
	server := grpc.NewServer()
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	if err := Answers(t.Context(), socket); err != nil {
		t.Error(err)
	}
}

func TestAProcessThatHangsOrIsAwayDoesNot(t *testing.T) {
	// The kernel takes connections for it, and nobody reads from them.
	_, hanging := listening(t)
	for _, socket := range []string{hanging, filepath.Join(t.TempDir(), "none.sock")} {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		err := Answers(ctx, socket)
		cancel()
		if err == nil {
			t.Errorf("%s answers", socket)
		}
	}
}
