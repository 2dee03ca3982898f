package config

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"
)

const added = "/etc/containerd/conf.d/rollbox.toml"

var addition = Addition{
	Handler: "runsc", Shim: "/opt/rollbox/bin/containerd-shim-runsc-v1", Runsc: "/opt/rollbox/etc/runsc.toml", Platform: "linux/amd64",
}

func lazy() Addition {
	with := addition
	with.Lazy = &Lazy{"runsc-lazy", "lazy", "/run/snapshotter.sock", "/var/lib/snapshotter"}
	return with
}

func read(t *testing.T, texts ...string) *Settings {
	t.Helper()
	var files []File
	for _, text := range texts {
		files = append(files, File{"/etc/containerd/config.toml", []byte(text)})
	}
	settings, err := Read(files)
	if err != nil {
		t.Fatal(err)
	}
	return settings
}

func TestAnAdditionKeepsWhatIsThere(t *testing.T) {
	for _, there := range []string{
		"version = 2\n[plugins.'io.containerd.grpc.v1.cri'.containerd]\ndefault_runtime_name = 'runc'\n" +
			"[plugins.'io.containerd.grpc.v1.cri'.containerd.runtimes.kata]\nruntime_type = 'io.containerd.kata.v2'\n",
		"version = 3\n[plugins.'io.containerd.cri.v1.runtime'.containerd]\ndefault_runtime_name = 'runc'\n" +
			"[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.kata]\nruntime_type = 'io.containerd.kata.v2'\n",
	} {
		before := read(t, there)
		text, err := addition.Text(before)
		if err != nil {
			t.Fatal(err)
		}
		after := read(t, there, string(text))
		if !after.HasHandler("kata") || !after.HasHandler("runsc") || after.HasHandler("runsc-lazy") {
			t.Errorf("%v", after.runtimes())
		}
		if !reflect.DeepEqual(after.Handlers(), []string{"runsc"}) {
			t.Errorf("gVisor's: %v", after.Handlers())
		}
		kept := after.at("plugins", names[before.Version].runtimes, "containerd")["default_runtime_name"]
		if kept != "runc" {
			t.Errorf("the default runtime is %v", kept)
		}
	}
}

func TestALazyRuntimeLeavesOtherImagesToTheirSnapshotter(t *testing.T) {
	const own = "version = 3\n[plugins.'io.containerd.cri.v1.images']\nsnapshotter = 'native'\n"
	const listed = own + "[[plugins.'io.containerd.transfer.v1.local'.unpack_config]]\nplatform = 'linux/arm64'\nsnapshotter = 'zfs'\n"
	for there, snapshotters := range map[string][]string{
		"version = 3\n": {"overlayfs", "lazy"}, own: {"native", "lazy"}, listed: {"zfs", "lazy"},
	} {
		with := lazy()
		text, err := with.Text(read(t, there))
		if err != nil {
			t.Fatal(err)
		}
		after := read(t, there, string(text))
		var found []string
		for _, one := range after.at("plugins", transfer)["unpack_config"].([]any) {
			found = append(found, one.(map[string]any)["snapshotter"].(string))
		}
		if !reflect.DeepEqual(found, snapshotters) {
			t.Errorf("unpacked for %v, not %v", found, snapshotters)
		}
		if !after.HasSnapshotter("lazy") || after.Snapshotter() == "lazy" {
			t.Errorf("%s", text)
		}
	}
}

func TestImportsAreAddedAndTakenOut(t *testing.T) {
	for before, after := range map[string]string{
		"version = 3\n":                       "version = 3\nimports = [\"" + added + "\"]\n",
		"version = 3":                         "version = 3\nimports = [\"" + added + "\"]\n",
		"# mine\nversion = 2 # old\nroot='x'": "# mine\nversion = 2 # old\nimports = [\"" + added + "\"]\nroot='x'",
		"version = 3\nimports = []\n":         "version = 3\nimports = [\"" + added + "\"]\n",
		"imports = [ # theirs\n  'a.toml',\n]\nversion = 3\n[grpc]\nimports=1\n": "imports = [\"" + added +
			"\",  # theirs\n  'a.toml',\n]\nversion = 3\n[grpc]\nimports=1\n",
		"version = 3\n[grpc]\naddress = '/x'\n": "version = 3\nimports = [\"" + added + "\"]\n[grpc]\naddress = '/x'\n",
	} {
		made, err := WithImport([]byte(before), added)
		if err != nil || string(made) != after {
			t.Errorf("%q became %q (%v)", before, made, err)
		}
		// An empty list is as good as none.
		before = strings.Replace(before, "imports = []\n", "", 1)
		if back := WithoutImport(made, added); strings.TrimSpace(string(back)) != strings.TrimSpace(before) {
			t.Errorf("%q came back as %q", before, back)
		}
	}
}

func TestAListOfImportsThatHasTheFileIsEnough(t *testing.T) {
	for imports, covered := range map[string]bool{
		"conf.d/*.toml": true, "/etc/containerd/conf.d/*.toml": true, "conf.d/rollbox.toml": true, added: true,
		"conf.d/*.yaml": false, "/etc/containerd/*.toml": false, "conf.d/[": false, "conf.d/rollbox": false,
	} {
		if found := Covers("/etc/containerd/config.toml", []string{imports}, added); found != covered {
			t.Errorf("%s: %v", imports, found)
		}
	}
}

func TestVersionsThatAreNotUnderstoodAreRefused(t *testing.T) {
	for _, texts := range [][]string{{"version = 4\n"}, {"version = 1\n"}, {"root = '/x'\n"}, {"version = 3\n", "version = 2\n"}} {
		var files []File
		for _, text := range texts {
			files = append(files, File{"config.toml", []byte(text)})
		}
		_, err := Read(files)
		if wrong := (*VersionError)(nil); !errors.As(err, &wrong) {
			t.Errorf("%q: %v", texts, err)
		}
	}
}

func FuzzWithImport(f *testing.F) {
	for _, text := range []string{
		"", "version = 3", "version=3\nimports=['a', # b\n]\n", "imports = [\r\n]\r\nversion = 2\r\n", "'imports' = []", "[imports]\na=1",
		"imports = 1", "version = 3 imports", "imports.a = 1", "\"\\u0069mports\" = [ [] ]", "x = '''\nversion = 3\n'''\n",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		made, err := WithImport(text, added)
		if err != nil {
			return
		}
		if err := compare(text, made, added); err != nil {
			t.Fatalf("%q became %q: %v", text, made, err)
		}
		if back := WithoutImport(made, added); bytes.Equal(back, made) {
			t.Fatalf("%q: the import of %q is not found again", text, made)
		}
	})
}
