package layer

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"
)

// node is a file with its content, a link to one, a folder, or a whiteout.
type node struct {
	kind    Kind
	content string // of a link its target
	opaque  bool
}

// tree is what a layer has, by path. Folders above an entry are in it.
type tree map[string]node

// grown is a layer as a file system of layers may write it; names of links lead to earlier files.
func grown(chance *rand.Rand) tree {
	made := tree{}
	var grow func(at string, depth int)
	grow = func(at string, depth int) {
		for _, name := range []string{"a", "b", "c"} {
			to := path.Join(at, name)
			switch chance.IntN(8) {
			case 0:
				made[to] = node{kind: File, content: fmt.Sprint(chance.IntN(1000))}
			case 1:
				made[to] = node{kind: Whiteout}
			case 2, 3:
				if depth < 3 {
					made[to] = node{kind: Folder, opaque: chance.IntN(3) == 0}
					grow(to, depth+1)
				}
			case 4:
				files := slices.DeleteFunc(slices.Sorted(maps.Keys(made)), func(one string) bool {
					return made[one].kind != File || one >= to
				})
				if len(files) > 0 {
					made[to] = node{kind: Hardlink, content: files[chance.IntN(len(files))]}
				}
			}
		}
	}
	grow("/", 0)
	return made
}

// archived is the layer as the agent writes it.
func archived(t *testing.T, of tree) []byte {
	t.Helper()
	var entries []Entry
	for _, at := range slices.Sorted(maps.Keys(of)) {
		one := of[at]
		entry := Entry{Path: at, Kind: one.kind, Mode: 0o755, Opaque: one.opaque}
		switch one.kind {
		case File:
			entry.Size = int64(len(one.content))
		case Hardlink:
			entry.Link = one.content
		}
		entries = append(entries, entry)
	}
	var into bytes.Buffer
	if _, err := Write(context.Background(), &into, entries, nil, 1<<20, written(of)); err != nil {
		t.Fatal(err)
	}
	return into.Bytes()
}

type written tree

func (c written) Read(_ context.Context, at string, _ int64, into io.Writer) error {
	_, err := io.WriteString(into, c[at].content)
	return err
}

// applied is what an image has with one more layer, by path; links are the files that they lead to. "/" is a folder.
func applied(t *testing.T, image map[string]string, layer []byte) map[string]string {
	t.Helper()
	mine, gone := map[string]string{}, []string{}
	archive := tar.NewReader(bytes.NewReader(layer))
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		at := "/" + strings.TrimSuffix(header.Name, "/")
		name := path.Base(at)
		switch {
		case name == opaqueName:
			gone = append(gone, path.Dir(at)+"/")
		case strings.HasPrefix(name, whiteoutPrefix):
			to := path.Join(path.Dir(at), name[len(whiteoutPrefix):])
			gone = append(gone, to, to+"/")
		case header.Typeflag == tar.TypeDir:
			mine[at] = "folder"
		case header.Typeflag == tar.TypeLink:
			content, is := mine["/"+header.Linkname]
			if !is {
				t.Fatalf("%s is a link to %s, which is not there before it", at, header.Linkname)
			}
			mine[at] = content
			gone = append(gone, at+"/")
		default:
			content, _ := io.ReadAll(archive)
			mine[at] = "file " + string(content)
			gone = append(gone, at+"/")
		}
	}
	made := map[string]string{}
	for at, content := range image {
		if _, is := mine[at]; is {
			continue
		}
		if !slices.ContainsFunc(gone, func(one string) bool {
			one = strings.ReplaceAll(one, "//", "/")
			return at == one || strings.HasSuffix(one, "/") && strings.HasPrefix(at, one)
		}) {
			made[at] = content
		}
	}
	maps.Copy(made, mine)
	return made
}

// squashed is the layer, and that with its folders.
func squashed(t *testing.T, below, above, folders []byte) ([]byte, []byte) {
	t.Helper()
	before, err := Index(bytes.NewReader(folders), bytes.NewReader(folders), bound)
	if err != nil {
		t.Fatal(err)
	}
	lower, err := Index(bytes.NewReader(below), bytes.NewReader(below), bound)
	if err != nil {
		t.Fatal(err)
	}
	upper, err := Index(bytes.NewReader(above), bytes.NewReader(above), bound)
	if err != nil {
		t.Fatal(err)
	}
	made, err := Squash(lower, upper, before, bound)
	if err != nil {
		t.Fatal(err)
	}
	var into, with bytes.Buffer
	if err := made.Write(context.Background(), &into, 1<<20); err != nil {
		t.Fatal(err)
	}
	if err := made.WriteFolders(&with); err != nil {
		t.Fatal(err)
	}
	return into.Bytes(), with.Bytes()
}

// marksShown are those in folders that a kernel does not merge with what is below: it shows them as files.
func marksShown(t *testing.T, image map[string]string, layer []byte) (shown []string) {
	t.Helper()
	read, err := Index(bytes.NewReader(layer), bytes.NewReader(layer), bound)
	if err != nil {
		t.Fatal(err)
	}
	for at := range read.gone {
		for folder := path.Dir(at); folder != "/"; folder = path.Dir(folder) {
			if image[folder] != "folder" || read.opaque[folder] {
				shown = append(shown, at)
			}
		}
	}
	return shown
}

// Any number of times: a squashed layer is one that can be squashed again.
func TestALayerStandsForAllBelowIt(t *testing.T) {
	for seed := range uint64(400) {
		chance := rand.New(rand.NewPCG(seed, 1))
		image := applied(t, map[string]string{}, archived(t, grown(chance)))
		apart, one, folders := image, []byte(nil), []byte(nil)
		for depth := range 4 {
			// A file system marks a removal where there is something to remove.
			change := grown(chance)
			maps.DeleteFunc(change, func(at string, one node) bool {
				_, is := apart[at]
				for folder := path.Dir(at); folder != "/"; folder = path.Dir(folder) {
					is = is && !change[folder].opaque
				}
				return one.kind == Whiteout && !is
			})
			next := archived(t, change)
			apart = applied(t, apart, next)
			if one == nil {
				one = next
			} else {
				one, folders = squashed(t, one, next, folders)
			}
			below := applied(t, image, folders)
			if together := applied(t, below, one); !maps.Equal(together, apart) {
				t.Fatalf("seed %d, depth %d:\n%v\n%v", seed, depth, together, apart)
			}
			if shown := marksShown(t, below, one); len(shown) > 0 {
				t.Fatalf("seed %d, depth %d: %v are shown", seed, depth, shown)
			}
		}
	}
}

func TestASquashedLayerIsBounded(t *testing.T) {
	below, above := archived(t, tree{"/a": {kind: File, content: "1"}}), archived(t, tree{"/b": {kind: File, content: "2"}})
	lower, _ := Index(bytes.NewReader(below), bytes.NewReader(below), bound)
	upper, _ := Index(bytes.NewReader(above), bytes.NewReader(above), bound)
	made, err := Squash(lower, upper, nil, bound)
	if err != nil {
		t.Fatal(err)
	}
	var large *TooLargeError
	if err := made.Write(context.Background(), io.Discard, 1024); !errors.As(err, &large) {
		t.Errorf("%v", err)
	}
	together, folders := squashed(t, below, above, nil)
	if len(folders) != 2*block {
		t.Errorf("%d bytes of folders", len(folders))
	}
	if size := int64(len(together)); size != made.Size() {
		t.Errorf("%d, said %d", size, made.Size())
	}
}

func FuzzIndex(f *testing.F) {
	f.Add([]byte("no archive"))
	var into bytes.Buffer
	archive := tar.NewWriter(&into)
	for _, name := range []string{"a/", "a/.wh.b", "a/.wh..wh..opq", "../x", "a//b"} {
		_ = archive.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o600, Format: tar.FormatPAX})
	}
	f.Add(into.Bytes())
	f.Fuzz(func(t *testing.T, data []byte) {
		read, err := Index(bytes.NewReader(data), bytes.NewReader(data), bound)
		if err != nil {
			return
		}
		for at, one := range read.parts {
			if !path.IsAbs(at) || path.Clean(at) != at || one.at < 0 || one.size < 0 {
				t.Errorf("%q %+v", at, one)
			}
		}
		made, err := Squash(read, read, nil, bound)
		if err == nil {
			_ = made.Write(context.Background(), io.Discard, 1<<20)
		}
	})
}
