package record

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// overlay mounts what a container has for its root file system.
func overlay(t *testing.T, files ...string) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root mounts")
	}
	folder := t.TempDir()
	for _, one := range []string{"lower", "upper", "work", "rootfs"} {
		if err := os.Mkdir(filepath.Join(folder, one), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, one := range files {
		path := filepath.Join(folder, "lower", one)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(one), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	at := filepath.Join(folder, "rootfs")
	options := fmt.Sprintf("lowerdir=%[1]s/lower,upperdir=%[1]s/upper,workdir=%[1]s/work", folder)
	if err := unix.Mount("overlay", at, "overlay", 0, options); err != nil {
		t.Skipf("no overlay is mounted here: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) })
	return at
}

func started(t *testing.T, at string) *Recording {
	t.Helper()
	recording, err := Start(at)
	if err != nil {
		t.Skipf("fanotify is not to be had here: %v", err)
	}
	return recording
}

func read(t *testing.T, path string) {
	t.Helper()
	if _, err := os.ReadFile(path); err != nil {
		t.Fatal(err)
	}
}

func TestWhatIsOpenedIsToldInItsOrderWhereverItIsMounted(t *testing.T) {
	at := overlay(t, "a/first", "second", "b/third", "never")
	recording := started(t, at)
	read(t, filepath.Join(at, "a/first"))
	read(t, filepath.Join(at, "second"))
	read(t, filepath.Join(at, "a/first"))
	if _, err := os.ReadDir(at); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(at, "never")); err != nil {
		t.Fatal(err)
	}
	// As a gofer has it.
	other := t.TempDir()
	script := fmt.Sprintf("mount --bind %s %s && cat %s/b/third", at, other, other)
	if told, err := exec.Command("unshare", "--mount", "sh", "-c", script).CombinedOutput(); err != nil {
		t.Fatal(err, string(told))
	}
	paths, more, err := recording.Stop()
	if want := []string{"/a/first", "/second", "/b/third"}; err != nil || more || !slices.Equal(paths, want) {
		t.Fatal(paths, more, err)
	}
}

func TestOtherFileSystemsAreNotToldOf(t *testing.T) {
	at, other := overlay(t, "same"), overlay(t, "same")
	recording := started(t, at)
	read(t, filepath.Join(other, "same"))
	read(t, "/proc/self/status")
	if paths, more, err := recording.Stop(); err != nil || more || len(paths) != 0 {
		t.Fatal(paths, more, err)
	}
}

func TestWhatIsToldIsBounded(t *testing.T) {
	var files []string
	name := strings.Repeat("a", 200)
	for i := range 2000 {
		files = append(files, fmt.Sprintf("%s/%s/%s/%d", name, name, name, i))
	}
	at := overlay(t, files...)
	recording := started(t, at)
	for _, one := range files {
		read(t, filepath.Join(at, one))
	}
	paths, more, err := recording.Stop()
	total := 0
	for _, one := range paths {
		total += len(one)
	}
	if err != nil || !more || total > mostBytes || total < mostBytes-700 {
		t.Fatal(len(paths), total, more, err)
	}
}

// ofFolder is a recording of a folder without a mount of its own, which is told of open files as the kernel tells of them.
func ofFolder(t *testing.T) (recording *Recording, folder string) {
	t.Helper()
	folder = t.TempDir()
	at, err := openRoot(folder)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = at.close() })
	return &Recording{root: at, seen: map[identity]bool{}}, folder
}

func event(t *testing.T, file *os.File) []byte {
	t.Helper()
	descriptor, err := unix.Dup(int(file.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	told := make([]byte, eventBytes)
	binary.NativeEndian.PutUint32(told, eventBytes)
	binary.NativeEndian.PutUint64(told[8:], unix.FAN_OPEN)
	binary.NativeEndian.PutUint32(told[16:], uint32(descriptor))
	return told
}

func created(t *testing.T, path string) *os.File {
	t.Helper()
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	return file
}

func TestNothingIsLookedForOnceTheListIsFull(t *testing.T) {
	recording, folder := ofFolder(t)
	recording.paths = make([]string, mostPaths)
	recording.all(event(t, created(t, filepath.Join(folder, "one"))))
	if len(recording.paths) != mostPaths || !recording.more {
		t.Fatal(len(recording.paths), recording.more)
	}
	recording.root = nil // whoever looks for a file panics
	recording.all(event(t, created(t, filepath.Join(folder, "other"))))
}

func TestFilesThatAreNowhereAreLookedForSoOften(t *testing.T) {
	recording, folder := ofFolder(t)
	gone := created(t, filepath.Join(folder, "gone"))
	if err := os.Remove(gone.Name()); err != nil {
		t.Fatal(err)
	}
	recording.misses = mostMisses - 2
	recording.all(event(t, gone))
	recording.all(event(t, created(t, filepath.Join(folder, "one"))))
	if recording.more || !slices.Equal(recording.paths, []string{"/one"}) {
		t.Fatal(recording.more, recording.paths)
	}
	recording.all(event(t, gone))
	recording.root = nil
	recording.all(event(t, gone))
	if !recording.more || len(recording.paths) != 1 {
		t.Fatal(recording.more, recording.paths)
	}
}

func TestLinksOfTheImageLeadNowhere(t *testing.T) {
	at := overlay(t, "real/file")
	if err := os.Symlink("/", filepath.Join(at, "root")); err != nil {
		t.Fatal(err)
	}
	from, err := openRoot(at)
	if err != nil {
		t.Fatal(err)
	}
	defer from.close()
	var about unix.Stat_t
	if err := unix.Stat("/etc/passwd", &about); err != nil {
		t.Fatal(err)
	}
	file := identity{about.Dev, about.Ino}
	for _, told := range []string{"/root/etc/passwd", "/etc/passwd", "/../../../../../../etc/passwd", "", "/"} {
		if path, found := from.find(told, file); found {
			t.Errorf("%q: %q", told, path)
		}
	}
}
