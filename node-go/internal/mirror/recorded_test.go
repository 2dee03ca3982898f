package mirror

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"rollbox.dev/node/internal/problem"
	"rollbox.dev/node/internal/wire"
)

const (
	alice = "a11ce0000000000000000000"
	bob   = "b0b000000000000000000000"
)

// filesImage has one layer with these files, in this order.
func filesImage(t *testing.T, names ...string) v1.Image {
	t.Helper()
	var content bytes.Buffer
	writer := tar.NewWriter(&content)
	for _, one := range names {
		header := &tar.Header{Name: one, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(one))}
		if err := writer.WriteHeader(header); err != nil {
			t.Fatal(err)
		}
		if _, err := writer.Write([]byte(one)); err != nil {
			t.Fatal(err)
		}
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content.Bytes())), nil })
	if err != nil {
		t.Fatal(err)
	}
	made, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// order is the names of the entries of an image's only layer, as the private registry has them.
func order(t *testing.T, private *server, digest string) []string {
	t.Helper()
	at, err := name.NewDigest(private.host + "/estargz/app@" + digest)
	if err != nil {
		t.Fatal(err)
	}
	made, err := remote.Image(at)
	if err != nil {
		t.Fatal(err)
	}
	layers, err := made.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatal(layers, err)
	}
	content, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	var names []string
	for reader := tar.NewReader(content); ; {
		header, err := reader.Next()
		if err == io.EOF {
			return names
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, header.Name)
	}
}

func TestTheFilesOfAListComeBeforeTheLandmark(t *testing.T) {
	asked, copier, upstream, private := lazily(t)
	asked.Source = upstream.push(t, "team/app", filesImage(t, "a", "b", "c", "d"))
	asked.Whose, asked.First = alice, []string{"/d", "/not/there", "/b"}
	result := copied(t, copier, asked)
	got := order(t, private, result.Digest)
	if want := []string{"d", "b", ".prefetch.landmark"}; !slices.Equal(got[:3], want) {
		t.Fatal(got)
	}
	if again := copied(t, copier, asked); !again.There || again.Digest != result.Digest {
		t.Fatal(again)
	}
}

func TestARecordedCopyIsItsOwnersAloneAndHoldsAfterABoot(t *testing.T) {
	asked, copier, upstream, _ := lazily(t)
	asked.Source = upstream.push(t, "team/app", filesImage(t, "a", "b", "c"))
	_, digest, _ := strings.Cut(asked.Source, "@")
	common := copied(t, copier, asked)
	find := func(whose string) (*wire.FindReply, error) {
		return copier.Find(t.Context(), &wire.FindRequest{
			Repository: "estargz/app", Reference: digest, Form: wire.ImageForm_ESTARGZ, Architectures: []string{"amd64"}, Whose: whose,
		})
	}
	judge := func(digestOfCopy string, boots bool) {
		t.Helper()
		if _, err := copier.Judge(t.Context(), &wire.JudgeRequest{
			Repository: "estargz/app", Source: digest, Architectures: []string{"amd64"}, Digest: digestOfCopy, Boots: boots, Whose: alice,
		}); err != nil {
			t.Fatal(err)
		}
	}
	made := map[string]string{}
	for _, first := range []string{"/b", "/c"} {
		asked.Whose, asked.First = alice, []string{first}
		made[first] = copied(t, copier, asked).Digest
		if _, err := find(bob); problem.From(err).Code != problem.ImageNotFound {
			t.Fatal(err)
		}
	}
	if _, err := find(alice); problem.From(err).Code != problem.ImageNotFound {
		t.Fatal("no sandbox has started from one", err)
	}
	for _, first := range []string{"/b", "/c"} {
		judge(made[first], true)
		if found, err := find(alice); err != nil || found.Digest != made[first] || found.Boot != wire.FindReply_BOOTED {
			t.Fatal(found, err)
		}
	}
	if _, err := find(bob); problem.From(err).Code != problem.ImageNotFound {
		t.Fatal(err)
	}
	// What all owners get is what it was.
	if found, err := find(""); err != nil || found.Digest != common.Digest || found.Boot != wire.FindReply_BOOT_UNSPECIFIED {
		t.Fatal(found, err)
	}
	// The first list's copy is there too: what runs from it goes on.
	asked.Whose, asked.First = alice, []string{"/b"}
	if again := copied(t, copier, asked); !again.There || again.Digest != made["/b"] {
		t.Fatal(again)
	}
}

// A registry removes a copy by its digest alone: so no two owners have the same one, though they have the same layers.
func TestEqualListsOfTwoOwnersGiveEachACopyOfItsOwn(t *testing.T) {
	asked, copier, upstream, private := lazily(t)
	asked.Source = upstream.push(t, "team/app", filesImage(t, "a", "b", "c"))
	common := copied(t, copier, asked)
	made := map[string]string{}
	for _, owner := range []string{alice, bob} {
		asked.Whose, asked.First = owner, []string{"/c"}
		made[owner] = copied(t, copier, asked).Digest
	}
	if made[alice] == made[bob] || !slices.Equal(order(t, private, made[alice]), order(t, private, made[bob])) {
		t.Fatal(made)
	}
	if layers := layersIn(t, private, made[alice]); !slices.Equal(layers, layersIn(t, private, made[bob])) {
		t.Fatal("the layers are not shared", layers)
	}
	// What changes nothing is the copy of all owners, which nobody's list takes room for.
	asked.Whose, asked.First = alice, []string{"/not/there"}
	if same := copied(t, copier, asked); same.Digest != common.Digest {
		t.Fatal(same, common)
	}
}

// layersIn are the digests of an image's layers, as the private registry has them.
func layersIn(t *testing.T, private *server, digest string) []string {
	t.Helper()
	at, err := name.NewDigest(private.host + "/estargz/app@" + digest)
	if err != nil {
		t.Fatal(err)
	}
	made, err := remote.Image(at)
	if err != nil {
		t.Fatal(err)
	}
	read, err := made.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, one := range read.Layers {
		found = append(found, one.Digest.String())
	}
	return found
}

func TestListsThatAreNoneAreRefused(t *testing.T) {
	source := "localhost/team/app@sha256:" + strings.Repeat("a", 64)
	many := make([]string, mostFirst+1)
	for i := range many {
		many[i] = fmt.Sprintf("/%d", i)
	}
	long := make([]string, 0, 1000)
	for i := range 1000 {
		long = append(long, fmt.Sprintf("/%d%s", i, strings.Repeat("/aaaaaaa", 400)))
	}
	for what, change := range map[string]func(*wire.CopyRequest){
		"relative":       func(asked *wire.CopyRequest) { asked.First = []string{"a"} },
		"not clean":      func(asked *wire.CopyRequest) { asked.First = []string{"/a/../b"} },
		"zero":           func(asked *wire.CopyRequest) { asked.First = []string{"/a\x00"} },
		"no text":        func(asked *wire.CopyRequest) { asked.First = []string{"/\xff"} },
		"too long":       func(asked *wire.CopyRequest) { asked.First = []string{"/" + strings.Repeat("a", mostPath)} },
		"too many":       func(asked *wire.CopyRequest) { asked.First = many },
		"too many bytes": func(asked *wire.CopyRequest) { asked.First = long },
		"nobody's":       func(asked *wire.CopyRequest) { asked.Whose = "" },
		"no digits":      func(asked *wire.CopyRequest) { asked.Whose = "../../../../../../../../" },
		"archs of a tag": func(asked *wire.CopyRequest) { asked.Architectures = []string{"aaaaaaaaaa", "bbbbbbbbbb"} },
		"no list":        func(asked *wire.CopyRequest) { asked.First = nil },
		"a plain copy": func(asked *wire.CopyRequest) {
			asked.Form, asked.Target, asked.Through = wire.ImageForm_PLAIN, "mirror/app", ""
		},
		"many architectures": func(asked *wire.CopyRequest) {
			asked.Architectures = []string{"aaaaaaaaaa", "bbbbbbbbbb", "cccccccccc", "dddddddddd"}
		},
	} {
		asked, copier, _, _ := lazily(t)
		asked.Source, asked.Whose, asked.First = source, alice, []string{"/a"}
		change(asked)
		if _, err := checked(asked, copier.Options); problem.From(err).Code != problem.InvalidArgument {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// The collector reads from a tag whose a copy is.
func TestATagSaysWhoseACopyIsAndFitsIntoARegistry(t *testing.T) {
	asked, copier, _, _ := lazily(t)
	asked.Source = "localhost/team/app@sha256:" + strings.Repeat("a", 64)
	asked.Whose, asked.First = alice, []string{"/a", "/b"}
	asked.Architectures = []string{"ppc64le", "amd64", "arm64"}
	wish, err := checked(asked, copier.Options)
	if err != nil {
		t.Fatal(err)
	}
	want := "copy-" + strings.Repeat("a", 64) + "-estargz-amd64-arm64-ppc64le-" + alice[:16] + "-"
	if list, ok := strings.CutPrefix(wish.marker(), want); !ok || len(list) != 12 || len(wish.marker()) > mostTag {
		t.Error(wish.marker())
	}
}
