package snapshotter

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"rollbox.dev/node/internal/wire"
)

var ours = strings.Repeat("ab", 32)

// container mounts the root file system of a container, as containerd does, with snapshots in a folder.
func container(t *testing.T, id string) (rootfs, snapshots string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root mounts")
	}
	folder := t.TempDir()
	rootfs, snapshots = filepath.Join(folder, "task/k8s.io", id, "rootfs"), filepath.Join(folder, "snapshotter")
	for _, one := range []string{rootfs, snapshots + "/1/fs", snapshots + "/2/fs", snapshots + "/2/work"} {
		if err := os.MkdirAll(one, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(snapshots+"/1/fs/file", []byte("a"), 0o644); err != nil {
		t.Fatal(err)
	}
	options := fmt.Sprintf("lowerdir=%[1]s/1/fs,upperdir=%[1]s/2/fs,workdir=%[1]s/2/work", snapshots)
	if err := unix.Mount("overlay", rootfs, "overlay", 0, options); err != nil {
		t.Skipf("no overlay is mounted here: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(rootfs, unix.MNT_DETACH) })
	return rootfs, snapshots
}

func client(t *testing.T, snapshots string) wire.RecorderClient {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	wire.RegisterRecorderServer(server, newRecorder(snapshots))
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return wire.NewRecorderClient(conn)
}

func begin(ctx context.Context, of wire.RecorderClient, id string) (grpc.BidiStreamingClient[wire.ContainerRecordRequest, wire.Recording], error) {
	stream, err := of.Record(ctx)
	if err != nil {
		return nil, err
	}
	if err := stream.Send(&wire.ContainerRecordRequest{ContainerId: id}); err != nil {
		return nil, err
	}
	_, err = stream.Recv()
	return stream, err
}

func TestAContainerIsRecordedUntilTheCallerSendsNoMore(t *testing.T) {
	rootfs, snapshots := container(t, ours)
	stream, err := begin(t.Context(), client(t, snapshots), ours)
	if status.Code(err) == codes.Unimplemented {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.ReadFile(rootfs + "/file"); err != nil {
		t.Fatal(err)
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	told, err := stream.Recv()
	if err != nil || !slices.Equal(told.GetOpened().GetPaths(), []string{"/file"}) || told.GetOpened().GetMore() {
		t.Fatal(told, err)
	}
	if _, err := stream.Recv(); err != io.EOF {
		t.Fatal(err)
	}
}

func TestOnlyContainersOfItsSnapshotsAreRecorded(t *testing.T) {
	_, snapshots := container(t, ours)
	asked := client(t, snapshots)
	for id, code := range map[string]codes.Code{
		strings.Repeat("cd", 32): codes.NotFound,
		"../../etc":              codes.InvalidArgument,
		"":                       codes.InvalidArgument,
	} {
		if _, err := begin(t.Context(), asked, id); status.Code(err) != code {
			t.Errorf("%q: %v", id, err)
		}
	}
	// The node's usual snapshotter has the container.
	if _, err := begin(t.Context(), client(t, filepath.Dir(snapshots)+"/snap"), ours); status.Code(err) != codes.NotFound {
		t.Error(err)
	}
}

func TestSoManyAreRecordedAtOnce(t *testing.T) {
	_, snapshots := container(t, ours)
	asked := client(t, snapshots)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	for range recordingsAtOnce {
		if _, err := begin(ctx, asked, ours); status.Code(err) == codes.Unimplemented {
			t.Skip(err)
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := begin(t.Context(), asked, ours); status.Code(err) != codes.ResourceExhausted {
		t.Fatal(err)
	}
	// Callers that leave make room.
	leave()
	for {
		if _, err := begin(t.Context(), asked, ours); err == nil {
			return
		} else if status.Code(err) != codes.ResourceExhausted || t.Context().Err() != nil {
			t.Fatal(err)
		}
	}
}
