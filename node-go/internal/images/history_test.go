package images

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"rollbox.dev/node/doubles/played"
	"rollbox.dev/node/internal/wire"
)

func TestVersionsAreThoseOfTheContract(t *testing.T) {
	text, err := os.ReadFile("../../../contract/vectors/image_list.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Marks   []string
		Version string
	}
	if err := json.Unmarshal(text, &cases); err != nil || len(cases) == 0 {
		t.Fatal(cases, err)
	}
	for _, one := range cases {
		marks := map[uint64]bool{}
		for _, text := range one.Marks {
			mark, err := strconv.ParseUint(text, 16, 64)
			if err != nil {
				t.Fatal(err)
			}
			marks[mark] = true
		}
		if got := versionOf(marks); got != one.Version {
			t.Errorf("%v: %s instead of %s", one.Marks, got, one.Version)
		}
	}
}

// reader is one that knows a node's images: a replica of the control plane.
type reader struct {
	version string
	images  map[uint64]*wire.Image
}

// take takes in an answer as a reader has to; it fails where that is not what the answer says that it is.
func (r *reader) take(t *testing.T, told *wire.ImageList) {
	t.Helper()
	if told.GetUnchanged() {
		return
	}
	if !told.GetChanges() {
		r.images = map[uint64]*wire.Image{}
	}
	for _, mark := range told.GetGone() {
		delete(r.images, mark)
	}
	marks := map[uint64]bool{}
	for _, one := range told.GetImages() {
		r.images[one.GetMark()] = one
	}
	for mark := range r.images {
		marks[mark] = true
	}
	if r.version = told.GetVersion(); versionOf(marks) != r.version {
		t.Fatalf("%d images are not those of version %s", len(marks), r.version)
	}
}

// large is the image with a number, in one of its states.
func large(number, state int) *cri.Image {
	host := strings.Repeat("registry.example.internal/mirror/team/project-", 2)
	return &cri.Image{
		Id:          fmt.Sprintf("sha256:%064x", number),
		RepoTags:    []string{fmt.Sprintf("%s%d:%d", host, number, state)},
		RepoDigests: []string{fmt.Sprintf("%s%d@sha256:%064x", host, number, number+1_000_000)},
		Size:        uint64(state),
	}
}

func asked(t *testing.T, storing *Store, known string) *wire.ImageList {
	t.Helper()
	answer, err := storing.Tell(t.Context(), known, true, true)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// Whatever comes, goes and changes, whichever answers are lost, and whenever an agent starts anew: each reader has, after
// an answer that arrived, what the node had.
func TestReadersOfChangesHaveWhatTheNodeHas(t *testing.T) {
	wholes, deltas := 0, 0
	for seed := range uint64(40) {
		dice := rand.New(rand.NewPCG(seed, 1))
		node := &played.Containerd{}
		storing := store(opened(t, node), nil, NewUse())
		readers := []*reader{{}, {}, {}}
		states := map[int]int{}
		for range 60 {
			for range dice.IntN(4) {
				if number := dice.IntN(12); dice.IntN(3) == 0 {
					delete(states, number)
				} else {
					states[number] = dice.IntN(3)
				}
			}
			node.Mutex.Lock()
			node.Images = nil
			for number, state := range states {
				node.Images = append(node.Images, large(number, state))
			}
			node.Mutex.Unlock()
			if dice.IntN(15) == 0 {
				storing.history = newHistory()
			}
			next := readers[dice.IntN(len(readers))]
			answer := asked(t, storing, next.version)
			if dice.IntN(4) == 0 {
				continue // it was lost on its way
			}
			next.take(t, answer)
			if answer.GetChanges() {
				deltas++
			} else if !answer.GetUnchanged() {
				wholes++
			}
			if len(next.images) != len(states) {
				t.Fatalf("seed %d: %d images, the node has %d", seed, len(next.images), len(states))
			}
			for _, one := range next.images {
				var number int
				_, _ = fmt.Sscanf(one.GetId(), "sha256:%x", &number)
				if state, there := states[number]; !there || one.GetSizeBytes() != uint64(state) {
					t.Fatalf("seed %d: image %d is known as %v, it is %d", seed, number, one, state)
				}
			}
		}
	}
	if wholes == 0 || deltas < wholes {
		t.Errorf("%d whole lists, %d of changes", wholes, deltas)
	}
}

func TestOneChangeOfVeryManyImagesIsAFewHundredBytes(t *testing.T) {
	node := &played.Containerd{Blobs: map[string][]byte{}}
	layers := make([]string, 10)
	for number := range 5000 {
		for i := range layers {
			layers[i] = fmt.Sprintf(`{"digest":"sha256:%064x","size":50000000}`, number*10+i)
		}
		node.Images = append(node.Images, large(number, 1))
		digest := fmt.Sprintf("sha256:%064x", number+1_000_000)
		node.Blobs[digest] = []byte(`{"config":{"digest":"sha256:c","size":3},"layers":[` + strings.Join(layers, ",") + `]}`)
	}
	storing, knowing := store(opened(t, node), nil, NewUse()), &reader{}
	whole := asked(t, storing, "")
	knowing.take(t, whole)
	node.Mutex.Lock()
	node.Images[77] = large(77, 2)
	node.Mutex.Unlock()
	changed := asked(t, storing, knowing.version)
	knowing.take(t, changed)
	t.Logf("5,000 images: %d bytes; one changed: %d bytes; none: %d bytes",
		proto.Size(whole), proto.Size(changed), proto.Size(asked(t, storing, knowing.version)))
	if proto.Size(whole) < 1<<20 || proto.Size(changed) > 2<<10 || len(changed.GetImages()) != 1 || len(changed.GetGone()) != 1 {
		t.Errorf("%d bytes after %d", proto.Size(changed), proto.Size(whole))
	}
}

func TestWhatIsRememberedIsBoundedAndThenAllIsTold(t *testing.T) {
	remembering := newHistory()
	list := func(number int) map[uint64]bool { return map[uint64]bool{uint64(number) + 1: true} }
	first := versionOf(list(0))
	for number := range 2 * mostGone {
		remembering.since("", versionOf(list(number)), list(number))
	}
	if len(remembering.gone) > mostGone || len(remembering.versions) > mostVersions || len(remembering.came) != 1 {
		t.Errorf("%d gone, %d versions", len(remembering.gone), len(remembering.versions))
	}
	last := list(2*mostGone - 1)
	if _, _, remembered := remembering.since(first, versionOf(last), last); remembered {
		t.Error("the first list is remembered")
	}
	// So many go at once that it is not known any more what was there before: but after that it is.
	many := map[uint64]bool{}
	for number := range uint64(mostGone + 1) {
		many[number+1_000_000] = true
	}
	remembering.since("", versionOf(many), many)
	if _, _, remembered := remembering.since(versionOf(many), first, list(0)); remembered {
		t.Error("what has gone is not remembered, and told all the same")
	}
	came, gone, remembered := remembering.since(first, first, list(0))
	if !remembered || len(came)+len(gone) != 0 {
		t.Error(came, gone, remembered)
	}
}
