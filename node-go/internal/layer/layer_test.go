package layer

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// one is a file of the table, before or in a layer.
type one struct {
	Path       string            `json:"path,omitempty"`
	Name       string            `json:"name,omitempty"`
	Kind       string            `json:"kind"`
	Mode       string            `json:"mode,omitempty"`
	UID        int               `json:"uid,omitempty"`
	GID        int               `json:"gid,omitempty"`
	Content    *string           `json:"content,omitempty"`
	Size       int64             `json:"size,omitempty"`
	Target     string            `json:"target,omitempty"`
	Opaque     bool              `json:"opaque,omitempty"`
	Attributes map[string]string `json:"attributes,omitempty"`
}

type vector struct {
	Name     string   `json:"name"`
	Files    []one    `json:"files"`
	Mounts   []string `json:"mounts"`
	MaxBytes int64    `json:"max_bytes"`
	Layer    []one    `json:"layer"`
	Skipped  []string `json:"skipped"`
	Refused  *string  `json:"refused"`
}

// contents are those of files by their paths.
type contents map[string]string

func (c contents) Read(_ context.Context, path string, size int64, into io.Writer) error {
	content, there := c[path]
	if !there || int64(len(content)) != size {
		return fmt.Errorf("%s was read, and is not there with %d bytes", path, size)
	}
	_, err := io.WriteString(into, content)
	return err
}

// listing is what a gVisor kernel tells of files.
func listing(t testing.TB, files []one) (*bytes.Buffer, contents) {
	t.Helper()
	written, read := &bytes.Buffer{}, contents{}
	archive := tar.NewWriter(written)
	firstWhiteout := ""
	put := func(header *tar.Header, content []byte) {
		header.Size = int64(len(content))
		if err := archive.WriteHeader(header); err != nil {
			t.Fatal(err)
		}
		if _, err := archive.Write(content); err != nil {
			t.Fatal(err)
		}
	}
	put(&tar.Header{Typeflag: tar.TypeDir, Name: "./", Mode: 0o755}, nil)
	for _, file := range files {
		mode, _ := strconv.ParseInt("0"+file.Mode, 8, 64)
		header := &tar.Header{Name: "." + file.Path, Mode: mode, Uid: file.UID, Gid: file.GID, PAXRecords: map[string]string{}}
		for name, value := range file.Attributes {
			header.PAXRecords[attributePrefix+name] = value
		}
		var where []byte
		switch file.Kind {
		case "file":
			size := file.Size
			if file.Content != nil {
				read[file.Path] = *file.Content
				size = max(size, int64(len(*file.Content)))
			}
			header.Typeflag = tar.TypeReg
			where = binary.LittleEndian.AppendUint64(nil, uint64(size))
			if size > 0 {
				where = append(where, make([]byte, 24)...)
			}
		case "folder":
			header.Typeflag = tar.TypeDir
			header.Name += "/"
			if file.Opaque {
				header.PAXRecords[attributePrefix+opaqueAttribute] = "y"
			}
		case "symlink":
			header.Typeflag, header.Linkname = tar.TypeSymlink, file.Target
		case "hardlink":
			header.Typeflag, header.Linkname = tar.TypeLink, "."+file.Target
		case "pipe":
			header.Typeflag = tar.TypeFifo
		case "device":
			header.Typeflag, header.Devmajor, header.Devminor = tar.TypeChar, 1, 3
		case "whiteout":
			header.Typeflag = tar.TypeChar
			if firstWhiteout != "" {
				header.Typeflag, header.Linkname = tar.TypeLink, "."+firstWhiteout
			} else {
				firstWhiteout = file.Path
			}
		default:
			t.Fatalf("unknown kind %q", file.Kind)
		}
		put(header, where)
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
	return written, read
}

// made reads a layer as the table has it.
func made(t testing.TB, layer io.Reader) []one {
	t.Helper()
	kinds := map[byte]string{tar.TypeReg: "file", tar.TypeDir: "folder", tar.TypeSymlink: "symlink", tar.TypeLink: "hardlink", tar.TypeFifo: "pipe"}
	archive := tar.NewReader(layer)
	var found []one
	for {
		header, err := archive.Next()
		if err == io.EOF {
			return found
		}
		if err != nil {
			t.Fatal(err)
		}
		file := one{Name: strings.TrimSuffix(header.Name, "/"), Kind: kinds[header.Typeflag]}
		if file.Target = header.Linkname; file.Target == "" {
			file.Mode, file.UID, file.GID = strconv.FormatInt(header.Mode, 8), header.Uid, header.Gid
			for name, value := range header.PAXRecords {
				if name, is := strings.CutPrefix(name, attributePrefix); is {
					file.Attributes = map[string]string{name: value}
				}
			}
		}
		if header.Typeflag == tar.TypeReg {
			text, err := io.ReadAll(archive)
			if err != nil {
				t.Fatal(err)
			}
			content := string(text)
			file.Content = &content
		}
		found = append(found, file)
	}
}

func sorted(t *testing.T, files []one) string {
	t.Helper()
	if len(files) == 0 {
		return ""
	}
	slices.SortFunc(files, func(a, b one) int { return strings.Compare(a.Name, b.Name) })
	text, err := json.MarshalIndent(files, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestTheTableThatTheEngineIsHeldToAsWell(t *testing.T) {
	text, err := os.ReadFile("../../../contract/vectors/layer.json")
	if err != nil {
		t.Fatal(err)
	}
	var table struct {
		Cases []vector `json:"cases"`
	}
	if err := json.Unmarshal(text, &table); err != nil {
		t.Fatal(err)
	}
	if len(table.Cases) < 10 {
		t.Fatalf("the table has %d cases", len(table.Cases))
	}
	for _, c := range table.Cases {
		t.Run(c.Name, func(t *testing.T) {
			listed, read := listing(t, c.Files)
			found, err := List(listed, bound)
			if err != nil {
				t.Fatal(err)
			}
			most := c.MaxBytes
			if most == 0 {
				most = 1 << 20
			}
			var layer bytes.Buffer
			report, err := Write(context.Background(), &layer, found, c.Mounts, most, read)
			if c.Refused != nil {
				var large *TooLargeError
				if !errors.As(err, &large) || !strings.Contains(err.Error(), *c.Refused) || int64(layer.Len()) > most {
					t.Fatalf("%v, %d bytes", err, layer.Len())
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got, want := sorted(t, made(t, &layer)), sorted(t, c.Layer); got != want {
				t.Errorf("got %s\nwant %s", got, want)
			}
			slices.Sort(report.Skipped)
			if !slices.Equal(report.Skipped, c.Skipped) {
				t.Errorf("skipped %q, want %q", report.Skipped, c.Skipped)
			}
		})
	}
}

func text(s string) *string { return &s }

func write(t *testing.T, files []one, most int64) (*Report, *bytes.Buffer, error) {
	t.Helper()
	listed, read := listing(t, files)
	found, err := List(listed, bound)
	if err != nil {
		t.Fatal(err)
	}
	var layer bytes.Buffer
	report, err := Write(context.Background(), &layer, found, nil, most, read)
	return report, &layer, err
}

func TestAnUnchangedSandboxHasNothing(t *testing.T) {
	report, layer, err := write(t, nil, 1<<20)
	if err != nil || len(report.Skipped) > 0 || layer.Len() != 1024 {
		t.Fatalf("%v, %v, %d bytes", report, err, layer.Len())
	}
}

func TestManyFilesAreBoundedByWhatTheirNamesTake(t *testing.T) {
	var files []one
	for number := range 300 {
		files = append(files, one{Path: fmt.Sprintf("/%d", number), Kind: "file"})
	}
	_, layer, err := write(t, files, 51200)
	var large *TooLargeError
	if !errors.As(err, &large) || layer.Len() > 51200 {
		t.Fatalf("%v, %d bytes", err, layer.Len())
	}
}

func TestWhatIsTooDeepIsTold(t *testing.T) {
	var files []one
	for depth := range maxDepth + 3 {
		files = append(files, one{Path: strings.Repeat("/d", depth+1), Kind: "folder", Mode: "755"})
	}
	report, layer, err := write(t, files, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if found := made(t, layer); len(found) != maxDepth || len(report.Skipped) != 1 || !strings.HasSuffix(report.Skipped[0], ": it is too deep") {
		t.Fatalf("%d entries, %q", len(found), report.Skipped)
	}
}

func TestALinkToWhatIsLeftOutIsTold(t *testing.T) {
	files := []one{
		{Path: "/.wh.x", Kind: "file", Content: text("content")},
		{Path: "/other", Kind: "hardlink", Target: "/.wh.x"},
		{Path: "/stray", Kind: "hardlink", Target: "/nowhere"},
	}
	report, layer, err := write(t, files, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"/.wh.x: its name would remove another file", "/other: a link to /.wh.x, which is left out",
		"/stray: a link to /nowhere, which is left out",
	}
	if found := made(t, layer); len(found) != 0 || !slices.Equal(report.Skipped, want) {
		t.Fatalf("%v, %q", found, report.Skipped)
	}
}

func TestWhatIsToldIsBoundedAndCanBePrinted(t *testing.T) {
	var files []one
	for number := range mostSkipped + 5 {
		files = append(files, one{Path: fmt.Sprintf("/.wh.\x1b[2J%s%04d", strings.Repeat("\xff", 200), number), Kind: "file"})
	}
	report, _, err := write(t, files, 1<<20)
	if err != nil || len(report.Skipped) != mostSkipped || report.More != 5 {
		t.Fatalf("%d and %d, %v", len(report.Skipped), report.More, err)
	}
	for _, told := range report.Skipped {
		if strings.ContainsAny(told, "\x1b\xff") || len(told) > maxPathChars+60 {
			t.Fatalf("%q", told)
		}
	}
}

func TestNamesAreAnyBytes(t *testing.T) {
	_, layer, err := write(t, []one{{Path: "/\xff\xfe", Kind: "file", Content: text("raw")}}, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if found := made(t, layer); len(found) != 1 || found[0].Name != "\xff\xfe" {
		t.Fatalf("%v", found)
	}
}

func TestAListingThatLeadsElsewhereIsRefused(t *testing.T) {
	folder := func(name string) tar.Header { return tar.Header{Typeflag: tar.TypeDir, Name: name} }
	link := tar.Header{Typeflag: tar.TypeSymlink, Name: "./link", Linkname: "/etc"}
	cases := [][]tar.Header{
		{folder("./"), folder("./../etc/")},
		{folder("./"), folder("/etc/")},
		{folder("./"), folder("./a/"), folder("./a//b/")},
		{folder("./"), folder("./a/"), folder("./a/./b/")},
		{folder("./a/")},
		{folder("./"), folder("./a/"), folder("./a/")},
		{folder("./"), link, folder("./link/x/")},
		{folder("./"), folder(".a/")},
		{folder("./"), {Typeflag: tar.TypeLink, Name: "./a", Linkname: "../../etc/passwd"}},
	}
	for _, headers := range cases {
		var listed bytes.Buffer
		archive := tar.NewWriter(&listed)
		for at := range headers {
			if err := archive.WriteHeader(&headers[at]); err != nil {
				t.Fatal(err)
			}
		}
		if err := archive.Close(); err != nil {
			t.Fatal(err)
		}
		if found, err := List(&listed, bound); err == nil {
			t.Errorf("%v", found)
		}
	}
}

func TestAnotherFormIsSaid(t *testing.T) {
	var listed bytes.Buffer
	archive := tar.NewWriter(&listed)
	_ = archive.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: "./"})
	_ = archive.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "./a", Size: 9})
	_, _ = archive.Write(make([]byte, 9))
	_ = archive.Close()
	if _, err := List(&listed, bound); !errors.Is(err, ErrForm) {
		t.Fatal(err)
	}
}

// FuzzAListing: whatever a kernel says, what comes out is a layer whose paths are inside, or an error.
func FuzzAListing(f *testing.F) {
	seed, _ := listing(f, []one{{Path: "/a", Kind: "folder", Mode: "755", Opaque: true}, {Path: "/a/b", Kind: "file", Content: text("x")}, {Path: "/w", Kind: "whiteout"}, {Path: "/v", Kind: "whiteout"}})
	f.Add(seed.Bytes(), int64(1<<16))
	f.Fuzz(func(t *testing.T, listed []byte, most int64) {
		found, err := List(bytes.NewReader(listed), bound)
		if err != nil {
			return
		}
		var layer bytes.Buffer
		most = max(0, min(most, 1<<20))
		if _, err := Write(context.Background(), &layer, found, []string{"/etc/hosts"}, most, zeros{}); err != nil {
			return
		}
		if int64(layer.Len()) > most {
			t.Fatalf("%d of %d bytes", layer.Len(), most)
		}
		archive := tar.NewReader(&layer)
		for {
			header, err := archive.Next()
			if err != nil {
				break
			}
			for part := range strings.SplitSeq(strings.Trim(header.Name, "/"), "/") {
				if part == ".." || header.Name != "./" && (part == "." || part == "") {
					t.Fatalf("%q", header.Name)
				}
			}
			if strings.HasPrefix(header.Name, "/") || strings.HasPrefix(header.Name, "proc/") {
				t.Fatalf("%q", header.Name)
			}
		}
	})
}

type zeros struct{}

func (zeros) Read(_ context.Context, _ string, size int64, into io.Writer) error {
	_, err := into.Write(make([]byte, size))
	return err
}
