package convert

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/stargz-snapshotter/estargz"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/klauspost/compress/zstd"
)

type file struct {
	header  tar.Header
	content string
}

func plainFile(name, content string) file {
	return file{tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o640, Uid: 7, Gid: 8, Size: int64(len(content))}, content}
}

func link(name, target string, kind byte) file {
	return file{tar.Header{Name: name, Typeflag: kind, Linkname: target, Mode: 0o777}, ""}
}

func archive(t *testing.T, files ...file) []byte {
	t.Helper()
	var buffer bytes.Buffer
	writer := tar.NewWriter(&buffer)
	for _, one := range files {
		if err := writer.WriteHeader(&one.header); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(writer, one.content); err != nil {
			t.Fatal(err)
		}
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	return buffer.Bytes()
}

func layerOf(t *testing.T, content []byte) v1.Layer {
	t.Helper()
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil })
	if err != nil {
		t.Fatal(err)
	}
	return layer
}

func imageOf(t *testing.T, layers ...v1.Layer) v1.Image {
	t.Helper()
	image, err := mutate.AppendLayers(empty.Image, layers...)
	if err != nil {
		t.Fatal(err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	config = config.DeepCopy()
	config.Config.Entrypoint, config.Config.Env = []string{"/run"}, []string{"A=b"}
	image, err = mutate.ConfigFile(image, config)
	if err != nil {
		t.Fatal(err)
	}
	return image
}

func rich(t *testing.T) []byte {
	owner := plainFile("usr/bin/tool", strings.Repeat("tool", 5<<18))
	owner.header.Mode = 0o4755
	owner.header.PAXRecords = map[string]string{"SCHILY.xattr.user.note": "kept"}
	return archive(t,
		file{tar.Header{Name: "usr/", Typeflag: tar.TypeDir, Mode: 0o755}, ""},
		file{tar.Header{Name: "usr/bin/", Typeflag: tar.TypeDir, Mode: 0o755}, ""},
		owner, link("usr/bin/same", "usr/bin/tool", tar.TypeLink), link("bin", "usr/bin", tar.TypeSymlink),
		file{tar.Header{Name: "etc/", Typeflag: tar.TypeDir, Mode: 0o755}, ""},
		plainFile("etc/passwd", "root"), plainFile("etc/.wh.shadow", ""), plainFile("etc/empty", ""),
		plainFile("./etc/twice", "first"), plainFile("/etc/twice", "second"),
		file{tar.Header{Name: "dev/null", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3, Mode: 0o666}, ""},
	)
}

func converted(t *testing.T, image v1.Image, options Options) v1.Image {
	t.Helper()
	if options.Folder == "" {
		options.Folder = t.TempDir()
	}
	result, err := Image(context.Background(), image, options)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func digestOf(t *testing.T, image v1.Image) string {
	t.Helper()
	digest, err := image.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return digest.String()
}

func TestTheSameImageGivesTheSameDigest(t *testing.T) {
	image := imageOf(t, layerOf(t, rich(t)), layerOf(t, archive(t, plainFile("a", "b"))))
	first := []string{"/usr/bin/tool", "etc/passwd"}
	one, other := converted(t, image, Options{First: first}), converted(t, image, Options{First: first})
	if digestOf(t, one) != digestOf(t, other) {
		t.Error("two conversions differ")
	}
	if digestOf(t, one) == digestOf(t, converted(t, image, Options{})) {
		t.Error("the order of files makes no difference")
	}
}

func TestAConvertedImageIsTheSourceInAnotherForm(t *testing.T) {
	image := imageOf(t, layerOf(t, rich(t)))
	result := converted(t, image, Options{})
	manifest, err := result.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	if manifest.MediaType != types.OCIManifestSchema1 || manifest.Config.MediaType != types.OCIConfigJSON {
		t.Errorf("media types %s and %s", manifest.MediaType, manifest.Config.MediaType)
	}
	if got := manifest.Annotations[SourceAnnotation]; got != digestOf(t, image) {
		t.Errorf("made of %q", got)
	}
	layer := manifest.Layers[0]
	if layer.MediaType != types.OCILayer || layer.Annotations[estargz.TOCJSONDigestAnnotation] == "" {
		t.Errorf("layer %+v", layer)
	}
	config, err := result.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if config.Config.Entrypoint[0] != "/run" || config.Config.Env[0] != "A=b" || len(config.RootFS.DiffIDs) != 1 {
		t.Errorf("configuration %+v", config)
	}
}

func TestFilesThatAreReadFirstComeFirst(t *testing.T) {
	image := imageOf(t, layerOf(t, rich(t)))
	result := converted(t, image, Options{First: []string{"/etc/passwd", "/nowhere", "/usr/bin/same"}})
	layers, err := result.Layers()
	if err != nil {
		t.Fatal(err)
	}
	content, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	var names []string
	for reader := tar.NewReader(content); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, header.Name)
	}
	got := strings.Join(names[:7], " ")
	if want := "etc/ etc/passwd usr/ usr/bin/ usr/bin/tool usr/bin/same " + estargz.PrefetchLandmark; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestLayersInEveryCompression(t *testing.T) {
	content := archive(t, plainFile("a", strings.Repeat("b", 1000)))
	var squeezed bytes.Buffer
	writer, err := zstd.NewWriter(&squeezed)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = writer.Write(content)
	_ = writer.Close()
	for name, blob := range map[string][]byte{"plain": content, "zstd": squeezed.Bytes()} {
		t.Run(name, func(t *testing.T) {
			source := &stored{Layer: layerOf(t, content), blob: blob}
			converted(t, &holding{imageOf(t, source), []v1.Layer{source}}, Options{})
		})
	}
}

func TestEmptyLayersAndManyOfThem(t *testing.T) {
	layers := []v1.Layer{layerOf(t, archive(t)), layerOf(t, nil)}
	for i := range 125 {
		layers = append(layers, layerOf(t, archive(t, plainFile(fmt.Sprint(i), "x"))))
	}
	result := converted(t, imageOf(t, layers...), Options{})
	if parts, err := result.Layers(); err != nil || len(parts) != 127 {
		t.Errorf("%d layers, %v", len(parts), err)
	}
}

func TestWhatIsRefused(t *testing.T) {
	small := layerOf(t, archive(t, plainFile("a", "b")))
	many := make([]v1.Layer, 128)
	for i := range many {
		many[i] = small
	}
	wrong := &lying{small}
	twice := make([]file, 20)
	for i := range twice {
		twice[i] = plainFile("same", "x")
	}
	limits := DefaultLimits
	limits.LayerBytes, limits.ImageBytes, limits.Entries, limits.Duplicates = 1<<20, 3<<19, 100, 10
	zeros := layerOf(t, archive(t, plainFile("zeros", strings.Repeat("\x00", 1<<21))))
	half := func(fill string) v1.Layer {
		return layerOf(t, archive(t, plainFile("half", strings.Repeat(fill, 9<<16))))
	}
	cases := map[string]v1.Image{
		"no layers":         imageOf(t),
		"more than 127":     imageOf(t, many...),
		"its registry":      imageOf(t, &stored{Layer: small, kind: types.DockerForeignLayer}),
		".. in its name":    imageOf(t, layerOf(t, archive(t, plainFile("a/../../etc/passwd", "x")))),
		".. in its name: ":  imageOf(t, layerOf(t, archive(t, link("a", "../b", tar.TypeLink)))),
		"of type":           imageOf(t, layerOf(t, rawSparse(t))),
		"not a tar":         imageOf(t, layerOf(t, []byte(strings.Repeat("not a tar archive", 100)))),
		"when it is":        imageOf(t, zeros),
		"when it is ":       imageOf(t, half("a"), half("b"), half("c")),
		"says":              imageOf(t, wrong),
		"names that it has": imageOf(t, layerOf(t, archive(t, twice...))),
	}
	for why, image := range cases {
		t.Run(why, func(t *testing.T) {
			_, err := Image(context.Background(), image, Options{Folder: t.TempDir(), Limits: limits})
			var refused *RefusedError
			if !errors.As(err, &refused) || !strings.Contains(err.Error(), strings.TrimRight(why, ": ")) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// rawSparse: archive/tar writes no sparse files, so the header is made by hand.
func rawSparse(t *testing.T) []byte {
	content := archive(t, plainFile("big", strings.Repeat("x", 512)))
	content[156] = 'S'
	copy(content[257:], "ustar  \x00")
	copy(content[386:], "00000000000\x0000000001000\x00")
	copy(content[483:], "77777777777\x00")
	sum := 0
	copy(content[148:156], "        ")
	for _, one := range content[:512] {
		sum += int(one)
	}
	copy(content[148:156], fmt.Sprintf("%06o\x00 ", sum))
	return content
}

func TestAnInterruptedConversionGoesOn(t *testing.T) {
	folder := t.TempDir()
	// From the top to the bottom.
	first := &stored{Layer: layerOf(t, rich(t))}
	second := &stored{Layer: layerOf(t, archive(t, plainFile("a", "b"))), err: errors.New("the registry is away")}
	image := &holding{imageOf(t, second.Layer, first.Layer), []v1.Layer{second, first}}
	if _, err := Image(context.Background(), image, Options{Folder: folder}); err == nil {
		t.Fatal("it was to be interrupted")
	}
	second.err = nil
	result := converted(t, image, Options{Folder: folder})
	if first.reads != 1 {
		t.Errorf("the finished layer was read %d times", first.reads)
	}
	if want := converted(t, image, Options{}); digestOf(t, result) != digestOf(t, want) {
		t.Error("it ended with another image")
	}
	if left, _ := filepath.Glob(filepath.Join(folder, "plain-*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestADamagedLayerOfAnEarlierConversionIsMadeAgain(t *testing.T) {
	folder := t.TempDir()
	image := imageOf(t, layerOf(t, rich(t)))
	want := digestOf(t, converted(t, image, Options{Folder: folder}))
	notes, _ := filepath.Glob(filepath.Join(folder, "*.json"))
	if err := os.WriteFile(strings.TrimSuffix(notes[0], ".json"), []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := digestOf(t, converted(t, image, Options{Folder: folder})); got != want {
		t.Error("it ended with another image")
	}
}

func TestALayerThatArrivesDamagedIsAnError(t *testing.T) {
	layer := layerOf(t, rich(t))
	compressed, err := layer.Compressed()
	if err != nil {
		t.Fatal(err)
	}
	blob, err := io.ReadAll(compressed)
	if err != nil {
		t.Fatal(err)
	}
	for name, broken := range map[string][]byte{"cut": blob[:len(blob)/2], "longer": append(bytes.Clone(blob), blob...)} {
		source := &stored{Layer: layer, blob: broken}
		if _, err := Image(context.Background(), &holding{imageOf(t, layer), []v1.Layer{source}}, Options{Folder: t.TempDir()}); err == nil {
			t.Errorf("%s: it was converted", name)
		}
	}
}

func TestACancelledConversionEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := Image(ctx, imageOf(t, layerOf(t, rich(t))), Options{Folder: t.TempDir()})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// holding is an image with other layers than it says.
type holding struct {
	v1.Image
	layers []v1.Layer
}

func (h *holding) Layers() ([]v1.Layer, error) { return h.layers, nil }

// stored is a layer as a registry gives it.
type stored struct {
	v1.Layer
	blob  []byte
	kind  types.MediaType
	err   error
	reads int
}

func (s *stored) MediaType() (types.MediaType, error) {
	if s.kind != "" {
		return s.kind, nil
	}
	return s.Layer.MediaType()
}

func (s *stored) Digest() (v1.Hash, error) {
	if s.blob == nil || bytes.HasPrefix(s.blob, []byte{0x1f, 0x8b}) {
		return s.Layer.Digest()
	}
	hash, _, err := v1.SHA256(bytes.NewReader(s.blob))
	return hash, err
}

func (s *stored) Compressed() (io.ReadCloser, error) {
	s.reads++
	if s.err != nil || s.blob == nil {
		if s.err != nil {
			return nil, s.err
		}
		return s.Layer.Compressed()
	}
	return io.NopCloser(bytes.NewReader(s.blob)), nil
}

// lying is a layer whose content is not what the image's configuration says.
type lying struct{ v1.Layer }

func (l *lying) DiffID() (v1.Hash, error) { return v1.NewHash("sha256:" + strings.Repeat("1", 64)) }
