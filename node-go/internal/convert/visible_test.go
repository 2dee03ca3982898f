package convert

import (
	"archive/tar"
	"errors"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

func folder(name string) file {
	return file{tar.Header{Name: name + "/", Typeflag: tar.TypeDir, Mode: 0o755}, ""}
}

// before returns the files of each layer that come before its landmark, from the bottom to the top.
func before(t *testing.T, image v1.Image) [][]string {
	t.Helper()
	layers, err := image.Layers()
	if err != nil {
		t.Fatal(err)
	}
	found := make([][]string, len(layers))
	for i, layer := range layers {
		content, err := layer.Uncompressed()
		if err != nil {
			t.Fatal(err)
		}
		defer content.Close()
		for reader := tar.NewReader(content); ; {
			header, err := reader.Next()
			if err != nil {
				t.Fatal(err)
			}
			if isOurs(header.Name) {
				break
			}
			if header.Typeflag != tar.TypeDir {
				found[i] = append(found[i], header.Name)
			}
		}
	}
	return found
}

func TestFilesComeFirstInTheLayerInWhichTheyAreSeen(t *testing.T) {
	kept, other := plainFile("etc/kept", "1"), plainFile("etc/other", "1")
	lower := archive(t, folder("etc"), folder("srv"), other, kept, plainFile("etc/hidden", "1"), plainFile("srv/file", "1"))
	first := []string{"/etc/hidden", "/srv/file", "/etc/kept"}
	for title, upper := range map[string]struct {
		files []file
		want  [][]string
	}{
		"of the same name": {
			[]file{folder("etc"), plainFile("etc/hidden", "2")},
			[][]string{{"srv/file", "etc/kept"}, {"etc/hidden"}},
		},
		"that removes it":    {[]file{folder("etc"), plainFile("etc/.wh.hidden", "")}, [][]string{{"srv/file", "etc/kept"}, nil}},
		"that removes all":   {[]file{folder("etc"), plainFile("etc/.wh..wh..opq", "")}, [][]string{{"srv/file"}, nil}},
		"without its folder": {[]file{plainFile(".wh.srv", "")}, [][]string{{"etc/hidden", "etc/kept"}, nil}},
		"with another thing": {[]file{link("srv", "etc", tar.TypeSymlink)}, [][]string{{"etc/hidden", "etc/kept"}, nil}},
		"with nothing else":  {[]file{plainFile(".wh..wh..opq", "")}, [][]string{nil, nil}},
		"of another name":    {[]file{folder("etc"), plainFile("etc/hidden2", "2")}, [][]string{{"etc/hidden", "srv/file", "etc/kept"}, nil}},
		"with the folder":    {[]file{folder("etc"), folder("srv")}, [][]string{{"etc/hidden", "srv/file", "etc/kept"}, nil}},
	} {
		image := imageOf(t, layerOf(t, lower), layerOf(t, archive(t, upper.files...)))
		got := before(t, converted(t, image, Options{First: first}))
		if !slices.EqualFunc(got, upper.want, slices.Equal) {
			t.Errorf("below a layer %s: %q instead of %q", title, got, upper.want)
		}
	}
}

func TestAConversionThatGoesOnKnowsWhatItsFinishedLayersHide(t *testing.T) {
	folderOf := t.TempDir()
	lower := &stored{Layer: layerOf(t, archive(t, plainFile("a", "1"), plainFile("b", "1"))), err: errors.New("the registry is away")}
	upper := &stored{Layer: layerOf(t, archive(t, plainFile(".wh.a", "")))}
	image := &holding{imageOf(t, lower.Layer, upper.Layer), []v1.Layer{lower, upper}}
	options := Options{Folder: folderOf, First: []string{"/b", "/a"}}
	if _, err := Image(t.Context(), image, options); err == nil {
		t.Fatal("it was to be interrupted")
	}
	lower.err = nil
	if got := before(t, converted(t, image, options)); upper.reads != 1 || !slices.Equal(got[0], []string{"b"}) {
		t.Error(upper.reads, got)
	}
}

// seen is the layer of which each name of some layers, the lowest first, is seen: as a union of them is made.
func seen(layers []map[string]byte) map[string]int {
	found := map[string]int{}
	remove := func(below string) {
		maps.DeleteFunc(found, func(name string, _ int) bool { return strings.HasPrefix(name, below) })
	}
	for number, layer := range layers {
		for name, kind := range layer {
			folder, base := path.Split(name)
			removed, is := strings.CutPrefix(base, ".wh.")
			switch {
			case base == ".wh..wh..opq":
				remove(folder)
			case is:
				remove(folder + removed + "/")
				delete(found, folder+removed)
			case kind != tar.TypeDir:
				remove(name + "/")
			}
		}
		for name := range layer {
			found[name] = number
		}
	}
	return found
}

func TestWhereAFileIsSeenIsWhatAUnionOfTheLayersShows(t *testing.T) {
	names := []string{"a", "a/b", "a/b/c", "ab", "d/e", "a/.wh.b", ".wh.a", "a/.wh..wh..opq", ".wh..wh..opq", "d/.wh.e", "d"}
	kinds := []byte{tar.TypeReg, tar.TypeDir, tar.TypeSymlink}
	for seed := range uint64(3000) {
		dice := rand.New(rand.NewPCG(seed, 1))
		layers := make([]map[string]byte, 1+dice.IntN(4))
		for i := range layers {
			layers[i] = map[string]byte{}
			for range dice.IntN(5) {
				layers[i][names[dice.IntN(len(names))]] = kinds[dice.IntN(len(kinds))]
			}
		}
		want := seen(layers)
		got, left := map[string]int{}, names
		for number, layer := range slices.Backward(layers) {
			has := contents{}
			for name, kind := range layer {
				has.add(name, kind)
			}
			for _, one := range has.present(left) {
				got[one] = number
			}
			left = without(left, has.hidden(left))
		}
		if !maps.Equal(got, want) {
			t.Fatalf("%v: %v instead of %v", layers, got, want)
		}
	}
}
