package containerd

import (
	"context"
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// Listener returns the process that listens on a Unix socket, by its number here; 0: it has none here, because this
// process runs in a pid namespace that does not hold it.
func Listener(ctx context.Context, socket string) (int32, error) {
	connection, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if err != nil {
		return 0, err
	}
	defer connection.Close()
	raw, err := connection.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0, err
	}
	var peer *unix.Ucred
	var failed error
	if err := raw.Control(func(descriptor uintptr) {
		peer, failed = unix.GetsockoptUcred(int(descriptor), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return 0, err
	}
	if failed != nil {
		return 0, fmt.Errorf("SO_PEERCRED of %s: %w", socket, failed)
	}
	return peer.Pid, nil
}
