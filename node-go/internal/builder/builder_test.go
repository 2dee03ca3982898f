package builder

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

const token = "0123456789abcdef"

type entry struct {
	name, content, link string
	kind                byte
}

func archive(t *testing.T, entries ...entry) *bytes.Buffer {
	t.Helper()
	var made bytes.Buffer
	to := tar.NewWriter(&made)
	for _, one := range entries {
		kind := one.kind
		if kind == 0 {
			kind = tar.TypeReg
		}
		header := &tar.Header{Name: one.name, Linkname: one.link, Typeflag: kind, Mode: 0o644, Size: int64(len(one.content)), ModTime: time.Unix(315_619_200, 0)}
		if err := to.WriteHeader(header); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(to, one.content); err != nil {
			t.Fatal(err)
		}
	}
	if err := to.Close(); err != nil {
		t.Fatal(err)
	}
	return &made
}

func roots(t *testing.T) (marked, rest *os.Root) {
	t.Helper()
	for _, to := range []**os.Root{&marked, &rest} {
		root, err := os.OpenRoot(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = root.Close() })
		*to = root
	}
	return marked, rest
}

func TestWhatIsMarkedIsNoContext(t *testing.T) {
	marked, rest := roots(t)
	given := archive(t, entry{name: "m/Dockerfile", content: "FROM a"}, entry{name: "a/b", content: "x"}, entry{name: "l", link: "a/b", kind: tar.TypeSymlink})
	if err := unpack(given, "m", 7, marked, rest); err != nil {
		t.Fatal(err)
	}
	if text, _ := marked.ReadFile("Dockerfile"); string(text) != "FROM a" {
		t.Errorf("the Dockerfile is %q", text)
	}
	if text, _ := rest.ReadFile("l"); string(text) != "x" {
		t.Errorf("the file behind the link is %q", text)
	}
	if _, err := rest.Stat("m"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the context has what is marked: %v", err)
	}
	if seen, err := rest.Stat("a/b"); err != nil || !seen.ModTime().Equal(time.Unix(315_619_200, 7)) {
		t.Errorf("its time is %v, %v", seen, err)
	}
}

func TestNothingIsWrittenOutsideOfAContext(t *testing.T) {
	for _, given := range [][]entry{
		{{name: "../x"}},
		{{name: "/x/../../y"}},
		{{name: "out", link: "/tmp", kind: tar.TypeSymlink}, {name: "out/x"}},
		{{name: "device", kind: tar.TypeChar}},
		{{name: "hard", link: "/etc/passwd", kind: tar.TypeLink}},
	} {
		marked, rest := roots(t)
		if err := unpack(archive(t, given...), "m", 1, marked, rest); err == nil {
			t.Errorf("%v was unpacked", given)
		}
	}
}

func TestTheWordsOfABuild(t *testing.T) {
	wish := Wish{
		Target: "last", Arguments: map[string]string{"B": "2", "A": "1 x"}, Bases: map[string]string{"rollbox/0": "sha256:0"},
		Secrets: map[string]string{"id": "secret-0"}, Files: true,
	}
	words := strings.Join(wish.words(places{"/c", "/b", "/in", "/out"}), "\n")
	for _, wanted := range []string{
		"force-network-mode=none", "target=last", "build-arg:A=1 x\n--opt\nbuild-arg:B=2",
		"context:rollbox/0=oci-layout://bases@sha256:0", "id=id,src=/b/secret-0", "files=/b/files\n--opt\ncontext:rollbox/files=local:files", "context=/c", "dest=/out",
	} {
		if !strings.Contains(words, wanted) {
			t.Errorf("%q is not among %q", wanted, words)
		}
	}
	wish.Network = true
	if words := wish.words(places{}); slices.ContainsFunc(words, func(word string) bool { return strings.Contains(word, "network") }) {
		t.Errorf("a build with a network asks for none of its own: %q", words)
	}
}

func TestWhoseFaultAFailureIs(t *testing.T) {
	for said, reason := range map[string]string{
		`failed to solve: process "/bin/sh -c false" did not complete successfully: exit code: 1`: byStep,
		`failed to solve: failed to compute cache key: "/x": not found`:                           byStep,
		"failed to solve: write /a: no space left on device":                                      byRoom,
		`failed to solve: rpc error: code = Unavailable desc = error reading from server: EOF`:    byBuilder,
		"": byBuilder,
	} {
		var because *failure
		if !errors.As(judged(said, errors.New("exit status 1")), &because) || because.reason != reason {
			t.Errorf("%q: %v", said, because)
		}
	}
}

func endNothing() error { return nil }

func served(t *testing.T, script string, most int64) (*httptest.Server, Settings) {
	t.Helper()
	settings := Settings{Token: token, State: t.TempDir(), MostBytes: most, Idle: time.Hour}
	if err := os.MkdirAll(filepath.Join(settings.State, "rollbox"), 0o700); err != nil {
		t.Fatal(err)
	}
	client := []string{"/bin/sh", "-c", script, "client"}
	server := httptest.NewServer(NewServer(settings, client, endNothing).Handler())
	t.Cleanup(server.Close)
	return server, settings
}

func asked(t *testing.T, method, url, shown string, body io.Reader) (int, string) {
	t.Helper()
	status, text, err := exchanged(t.Context(), method, url, shown, body)
	if err != nil {
		t.Fatal(err)
	}
	return status, text
}

func exchanged(ctx context.Context, method, url, shown string, body io.Reader) (int, string, error) {
	request, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return 0, "", err
	}
	request.Header.Set("Authorization", "Bearer "+shown)
	request.Header.Set("Rollbox-Mark", "m")
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	return answer.StatusCode, string(text), err
}

func digest(content string) string {
	sum := sha256.Sum256([]byte(content))
	return "sha256:" + hex.EncodeToString(sum[:])
}

func wished(t *testing.T) *bytes.Buffer {
	return archive(t, entry{name: "m/wish.json", content: `{"target": "", "bases": {}}`}, entry{name: "m/Dockerfile", content: "FROM scratch"})
}

func told(t *testing.T, text string) []Line {
	t.Helper()
	var lines []Line
	for scanner := bufio.NewScanner(strings.NewReader(text)); scanner.Scan(); {
		var line Line
		if err := json.Unmarshal(scanner.Bytes(), &line); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, line)
	}
	return lines
}

func TestNothingIsAnsweredWithoutTheToken(t *testing.T) {
	server, _ := served(t, "exit 0", 1)
	for _, path := range []string{"/ready", "/blobs/" + digest("x")} {
		if status, _ := asked(t, http.MethodGet, server.URL+path, "another", nil); status != http.StatusUnauthorized {
			t.Errorf("%s: %d", path, status)
		}
	}
}

func TestABlobIsWhatItsDigestSays(t *testing.T) {
	server, settings := served(t, "exit 0", 1<<40)
	url := server.URL + "/blobs/" + digest("x")
	if status, text := asked(t, http.MethodPut, url, token, strings.NewReader("y")); status != http.StatusBadRequest {
		t.Errorf("another content: %d %s", status, text)
	}
	if status, _ := asked(t, http.MethodPut, server.URL+"/blobs/..%2f..%2fx", token, strings.NewReader("y")); status != http.StatusBadRequest {
		t.Errorf("no digest: %d", status)
	}
	if status, text := asked(t, http.MethodPut, url, token, strings.NewReader("x")); status != http.StatusCreated {
		t.Errorf("%d %s", status, text)
	}
	left, err := os.ReadDir(filepath.Join(settings.State, "rollbox/bases/blobs/sha256"))
	if err != nil || len(left) != 1 {
		t.Errorf("there are %v, %v", left, err)
	}
}

// Writes what BuildKit writes.
const makes = `for word; do case $word in *dest=*) out=${word##*dest=} ;; esac; done
mkdir -p $out/blobs/sha256
cd $out
put() { name=$(printf %s "$1" | sha256sum | cut -c1-64); printf %s "$1" > blobs/sha256/$name; }
put '{"config": {"digest": "sha256:c"}, "layers": []}'
echo '{"manifests": [{"digest": "sha256:'$name'"}]}' > index.json
echo "#1 said" >&2`

func TestABuildTellsItsWordsAndThenWhatItHasMade(t *testing.T) {
	server, settings := served(t, makes, 1<<40)
	for range 2 {
		_, text := asked(t, http.MethodPost, server.URL+"/build", token, wished(t))
		lines := told(t, text)
		if len(lines) != 2 || lines[0].Text != "#1 said\n" || lines[1].Image == nil || lines[1].Image.Config.Digest != "sha256:c" {
			t.Fatalf("%q", text)
		}
	}
	status, _ := asked(t, http.MethodGet, server.URL+"/blobs/"+digest(`{"config": {"digest": "sha256:c"}, "layers": []}`), token, nil)
	if status != http.StatusOK {
		t.Errorf("what was made: %d", status)
	}
	left, err := os.ReadDir(filepath.Join(settings.State, "rollbox"))
	if names := slices.Collect(func(yield func(string) bool) {
		for _, one := range left {
			if !yield(one.Name()) {
				return
			}
		}
	}); err != nil || !slices.Equal(names, []string{"bases", "made"}) {
		t.Errorf("there are %v, %v", names, err)
	}
}

func TestWhatABuildReadsIsThereWhereItsImageGoes(t *testing.T) {
	server, settings := served(t, `for word; do case $word in *dest=*) out=${word##*dest=} ;; esac; done; ls $out/blobs/sha256 >&2; `+makes, 1<<40)
	base := digest("x")
	if status, text := asked(t, http.MethodPut, server.URL+"/blobs/"+base, token, strings.NewReader("x")); status != http.StatusCreated {
		t.Fatalf("%d %s", status, text)
	}
	for range 2 {
		_, text := asked(t, http.MethodPost, server.URL+"/build", token, wished(t))
		if lines := told(t, text); len(lines) != 3 || lines[0].Text != base[len("sha256:"):]+"\n" {
			t.Errorf("there are others than %s: %q", base, text)
		}
	}
	if kept, err := os.ReadDir(filepath.Join(settings.State, "rollbox/bases", blobs)); err != nil || len(kept) != 1 {
		t.Errorf("of bases there are %v, %v", kept, err)
	}
}

func TestHowABuildFails(t *testing.T) {
	for script, wanted := range map[string]Line{
		`echo 'error: failed to solve: process "x" did not complete successfully: exit code: 3' >&2; exit 1`: {Reason: byStep, Why: `process "x" did not complete successfully: exit code: 3`},
		"exit 7":        {Reason: byBuilder, Why: "BuildKit's client has failed: exit status 7"},
		"exec sleep 60": {Reason: byRoom, Why: "the build has filled the disk that it may have"},
	} {
		most := int64(1 << 60)
		if wanted.Reason == byRoom {
			most = 1
		}
		server, _ := served(t, script, most)
		_, text := asked(t, http.MethodPost, server.URL+"/build", token, wished(t))
		lines := told(t, text)
		if last := lines[len(lines)-1]; last.Reason != wanted.Reason || last.Why != wanted.Why {
			t.Errorf("%s: %q", script, text)
		}
	}
}

func TestAnotherBuildMayBeginWhereNothingOfTheLastOneRuns(t *testing.T) {
	var left error
	settings := Settings{Token: token, State: t.TempDir(), MostBytes: 1 << 60, Idle: time.Hour}
	if err := os.MkdirAll(filepath.Join(settings.State, "rollbox"), 0o700); err != nil {
		t.Fatal(err)
	}
	tidying, goOn := make(chan bool), make(chan error)
	tidy := func() error { tidying <- true; return <-goOn }
	server := httptest.NewServer(NewServer(settings, []string{"/bin/false"}, tidy).Handler())
	defer server.Close()
	for _, wanted := range []int{http.StatusOK, http.StatusServiceUnavailable} {
		given, answered := wished(t), make(chan int, 1)
		go func() { _, _, _ = exchanged(t.Context(), http.MethodPost, server.URL+"/build", token, given) }()
		<-tidying
		go func() {
			status, _, _ := exchanged(t.Context(), http.MethodGet, server.URL+"/ready", token, nil)
			answered <- status
		}()
		select {
		case status := <-answered:
			t.Fatalf("while a build ends: %d", status)
		case <-time.After(50 * time.Millisecond):
		}
		goOn <- left
		if status := <-answered; status != wanted {
			t.Errorf("where %v is left: %d", left, status)
		}
		left = errors.New("a process")
	}
}

func TestABuilderThatIsHalfFullIsNotReady(t *testing.T) {
	server, _ := served(t, "exit 0", 2)
	if status, _ := asked(t, http.MethodGet, server.URL+"/ready", token, nil); status != http.StatusServiceUnavailable {
		t.Errorf("%d", status)
	}
}

func TestWhichProcessesOthersAre(t *testing.T) {
	proc := t.TempDir()
	for _, name := range []string{"1", "7", "12", "self", "sys"} {
		if err := os.Mkdir(filepath.Join(proc, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if found, err := others(proc, 1, 7); err != nil || !slices.Equal(found, []int{12}) {
		t.Errorf("%v, %v", found, err)
	}
	if err := endOthers(0); err != nil {
		t.Errorf("it has tried outside of a namespace of its own: %v", err)
	}
}

func TestOneThatNobodyAsksEnds(t *testing.T) {
	server := NewServer(Settings{Token: token, Idle: time.Hour}, nil, endNothing)
	if server.Idle() {
		t.Error("it has just begun")
	}
	server.last.Store(time.Now().Add(-2 * time.Hour).UnixNano())
	if !server.Idle() {
		t.Error("nobody has asked for two hours")
	}
	server.under.Store(1)
	if server.Idle() {
		t.Error("a request is under way")
	}
}

func TestSettings(t *testing.T) {
	given := map[string]string{"ROLLBOX_BUILDER_TOKEN": token, "ROLLBOX_BUILDER_MOST_BYTES": "7"}
	lookup := func(name string) (string, bool) { value, ok := given[name]; return value, ok }
	if found, err := ReadSettings(lookup); err != nil || found.MostBytes != 7 || found.Listen != ":7070" {
		t.Errorf("%v, %v", found, err)
	}
	for name, value := range map[string]string{"ROLLBOX_BUILDER_TOKEN": "short", "ROLLBOX_BUILDER_MOST_BYTES": "-1"} {
		was := given[name]
		given[name] = value
		var setting *SettingError
		if _, err := ReadSettings(lookup); !errors.As(err, &setting) || setting.Variable != name {
			t.Errorf("%s=%s: %v", name, value, err)
		}
		given[name] = was
	}
}
