package layer

import (
	"archive/tar"
	"bytes"
	"fmt"
	"runtime"
	"strings"
	"testing"
)

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var told runtime.MemStats
	runtime.ReadMemStats(&told)
	return int64(told.HeapAlloc)
}

// many is an archive of so many files in folders, whose names have the length that a bound counts with.
func many(t *testing.T, count int) []byte {
	t.Helper()
	var made bytes.Buffer
	archive := tar.NewWriter(&made)
	put := func(name string, kind byte) {
		if err := archive.WriteHeader(&tar.Header{Name: name, Typeflag: kind, Mode: 0o755, Format: tar.FormatPAX}); err != nil {
			t.Fatal(err)
		}
	}
	put("./", tar.TypeDir)
	folder := ""
	for at := range count - 1 {
		if at%50 == 0 {
			folder = fmt.Sprintf("./%060d/", at)
			put(folder, tar.TypeDir)
			continue
		}
		put(folder+fmt.Sprintf("%0*d", nameBytesPerFile-len(folder)+1, at), tar.TypeFifo)
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
	return made.Bytes()
}

// The most is known of files while a sandbox that was started from a checkpoint is listed, and when both layers become one.
func TestWhatIsKnownOfFilesFitsIntoWhatTheBoundCountsWith(t *testing.T) {
	const count = 60_000
	archive, bound := many(t, count), Bound{count}
	before := heap()
	below, err := Index(bytes.NewReader(archive), bytes.NewReader(archive), bound)
	if err != nil {
		t.Fatal(err)
	}
	found, err := List(bytes.NewReader(archive), bound)
	if err != nil {
		t.Fatal(err)
	}
	if taken := (heap() - before) / count; taken > bytesPerFile {
		t.Errorf("a listing above a layer takes %d bytes for each file", taken)
	} else {
		t.Logf("a listing above a layer: %d bytes for each file", taken)
	}
	runtime.KeepAlive(found)
	found = nil
	above, err := Index(bytes.NewReader(archive), bytes.NewReader(archive), bound)
	if err != nil {
		t.Fatal(err)
	}
	made, err := Squash(below, above, nil, bound)
	if err != nil {
		t.Fatal(err)
	}
	if taken := (heap() - before) / count; taken > bytesPerFile {
		t.Errorf("two layers take %d bytes for each file", taken)
	} else {
		t.Logf("two layers: %d bytes for each file", taken)
	}
	runtime.KeepAlive(made)
	runtime.KeepAlive(archive)
}

func TestALayerMayHaveAsManyFilesAsItsShareOfMemoryHolds(t *testing.T) {
	for _, one := range []struct {
		memory  int64
		commits int
		want    int
	}{{512 << 20, 2, 314_572}, {1 << 30, 2, 629_145}, {512 << 20, 1, 629_145}} {
		bound := Within(one.memory, one.commits)
		if bound.Entries != one.want {
			t.Errorf("%+v: %d", one, bound.Entries)
		}
		if all := int64(bound.Entries) * bytesPerFile * int64(one.commits); all > one.memory/4*3 {
			t.Errorf("%+v: all commits take %d bytes", one, all)
		}
	}
}

func TestNamesAreBoundedTogether(t *testing.T) {
	archive := many(t, 100)
	if _, err := List(bytes.NewReader(archive), Bound{100}); err != nil {
		t.Fatal(err)
	}
	var made bytes.Buffer
	writer := tar.NewWriter(&made)
	_ = writer.WriteHeader(&tar.Header{Name: "./", Typeflag: tar.TypeDir})
	for at := range 10 {
		_ = writer.WriteHeader(&tar.Header{Name: fmt.Sprintf("./%d%s", at, strings.Repeat("n", 200)), Typeflag: tar.TypeFifo})
	}
	_ = writer.Close()
	for name, read := range map[string]func(Bound) error{
		"a listing": func(b Bound) error { _, err := List(bytes.NewReader(made.Bytes()), b); return err },
		"a layer": func(b Bound) error {
			_, err := Index(bytes.NewReader(made.Bytes()), bytes.NewReader(made.Bytes()), b)
			return err
		},
	} {
		if err := read(Bound{11}); err != ErrTooMany {
			t.Errorf("%s: %v", name, err)
		}
		if err := read(Bound{20}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
