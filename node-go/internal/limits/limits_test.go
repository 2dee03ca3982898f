package limits

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// played is a folder as /proc/sys is one.
func played(t *testing.T, values map[string]string) (root string) {
	t.Helper()
	root = t.TempDir()
	for name, value := range values {
		path := file(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(value+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

var small = map[string]string{
	"kernel.pid_max": "32768", "kernel.threads-max": "190000", "fs.file-max": "9223372036854775807",
	"fs.inotify.max_user_watches": "8192", "net.netfilter.nf_conntrack_max": "4096",
}

func names(low []Low) string {
	var all []string
	for _, one := range low {
		all = append(all, one.Name)
	}
	return strings.Join(all, " ")
}

func is(t *testing.T, root, name string) string {
	t.Helper()
	text, err := os.ReadFile(file(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

func TestWhatIsTooLowForSoManySandboxesIsTold(t *testing.T) {
	root := played(t, small)
	low, err := Look(root, 256)
	if err != nil || names(low) != "kernel.pid_max fs.inotify.max_user_watches net.netfilter.nf_conntrack_max" {
		t.Fatal(low, err)
	}
	if said := low[0].String(); said != "kernel.pid_max is 32768, and 47104 is needed" {
		t.Error(said)
	}
	if low, err = Look(root, 100); err != nil || names(low) != "fs.inotify.max_user_watches net.netfilter.nf_conntrack_max" {
		t.Error(low, err)
	}
	if err := os.WriteFile(file(root, "kernel.pid_max"), []byte("many\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	// One that cannot be read keeps no other from being told.
	if low, err = Look(root, 256); err == nil || len(low) != 2 {
		t.Error(low, err)
	}
}

func TestWhatIsTooLowIsRaisedOnceAndGivenBack(t *testing.T) {
	root, record := played(t, small), filepath.Join(t.TempDir(), "limits.json")
	done, err := Raise(root, 256, record)
	if err != nil || names(done) != "kernel.pid_max fs.inotify.max_user_watches" {
		t.Fatal(done, err)
	}
	if is(t, root, "kernel.pid_max") != "4194304" || is(t, root, "fs.inotify.max_user_watches") != "65536" {
		t.Error("not raised")
	}
	if is(t, root, "net.netfilter.nf_conntrack_max") != "4096" {
		t.Error("what is somebody else's was changed")
	}
	if done, err = Raise(root, 256, record); err != nil || len(done) > 0 {
		t.Error("raised twice", done, err)
	}
	// More sandboxes need more; what there was before the first time is not forgotten.
	if done, err = Raise(root, 10000, record); err != nil || names(done) != "kernel.threads-max fs.inotify.max_user_watches" {
		t.Error(done, err)
	}
	if _, err := Restore(root, record); err != nil {
		t.Fatal(err)
	}
	for name, before := range small {
		if now := is(t, root, name); now != before {
			t.Errorf("%s is %s, and was %s", name, now, before)
		}
	}
	if _, err := os.Stat(record); !os.IsNotExist(err) {
		t.Error("the record stays")
	}
	if done, err := Restore(root, record); err != nil || len(done) > 0 {
		t.Error(done, err)
	}
}

func TestWhatSomebodyElseHasSetSinceStays(t *testing.T) {
	root, record := played(t, small), filepath.Join(t.TempDir(), "limits.json")
	if _, err := Raise(root, 256, record); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file(root, "kernel.pid_max"), []byte("131072\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if done, err := Restore(root, record); err != nil || len(done) != 1 || is(t, root, "kernel.pid_max") != "131072" {
		t.Error(done, err)
	}
}

// As after a reboot with a file of sysctl.d of theirs.
func TestAHigherValueThatIsStillTooLowIsTheOneThatIsGivenBack(t *testing.T) {
	root, record := played(t, small), filepath.Join(t.TempDir(), "limits.json")
	if _, err := Raise(root, 10000, record); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file(root, "fs.inotify.max_user_watches"), []byte("60000\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if done, err := Raise(root, 10000, record); err != nil || names(done) != "fs.inotify.max_user_watches" {
		t.Fatal(done, err)
	}
	if _, err := Restore(root, record); err != nil || is(t, root, "fs.inotify.max_user_watches") != "60000" {
		t.Error(is(t, root, "fs.inotify.max_user_watches"), err)
	}
}

func TestASettingThatCannotBeChangedKeepsNoOtherFromIt(t *testing.T) {
	root, record := played(t, small), filepath.Join(t.TempDir(), "limits.json")
	if err := os.Remove(file(root, "kernel.pid_max")); err != nil {
		t.Fatal(err)
	}
	// One that the kernel lets nobody write.
	if err := os.Symlink("/proc/sys/kernel/ngroups_max", file(root, "kernel.pid_max")); err != nil {
		t.Fatal(err)
	}
	done, err := Raise(root, 1000, record)
	if err == nil || names(done) != "fs.inotify.max_user_watches" {
		t.Error(done, err)
	}
}
