package collector

import (
	"context"
	"crypto/sha256"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"rollbox.dev/node/internal/problem"
)

func TestWhatNoManifestNamesGoesAndAllElseStays(t *testing.T) {
	w := newWorld(t)
	w.image("mirror/a", "copy-1", "own", "shared")
	gone := w.image("mirror/b", "copy-1", "gone", "shared")
	w.image("commits/alice/x", "id-1", "commit", "shared")
	w.age()
	if there, err := w.Remove("mirror/b", gone.String(), time.Now()); err != nil || !there {
		t.Fatal(there, err)
	}
	done := w.collect()
	if done.FreedBlobs != 2 || done.FreedBytes != int64(len("gone")+len(manifestOf(hash{}, hash{}))) || done.Blobs != 5 {
		t.Errorf("%+v", done)
	}
	if w.has("gone") || !w.has("own") || !w.has("shared") || !w.has("commit") {
		t.Error("the wrong ones are gone")
	}
	if w.there(w.layout.layer("mirror/b", hash(sha256.Sum256([]byte("gone"))))) {
		t.Error("a link to what is gone is left")
	}
	if again := w.collect(); again.FreedBlobs != 0 {
		t.Errorf("%+v", again)
	}
}

func TestWhatIsYoungOrHasAYoungLinkStays(t *testing.T) {
	w := newWorld(t)
	linked := w.blob("mirror/a", "linked")
	w.blob("mirror/a", "old")
	w.age()
	w.write(w.layout.layer("commits/alice/x", linked), []byte(linked.String()))
	w.blob("mirror/a", "young")
	w.collect()
	if !w.has("young") || !w.has("linked") || w.has("old") {
		t.Error("the wrong ones are gone")
	}
}

// A manifest that names another one as a layer does not hide what that one names.
func TestAManifestThatIsNamedAsALayerIsReadAllTheSame(t *testing.T) {
	for range 20 { // in any order
		w := newWorld(t)
		inner := w.image("commits/alice/x", "id-1", "victim")
		w.write(w.layout.layer("commits/eve/x", inner), []byte(inner.String()))
		w.put("commits/eve/x", "id-1", manifestOf(inner))
		w.age()
		w.collect()
		if !w.has("victim") {
			t.Fatal("it is gone")
		}
	}
}

func TestWhatIsPushedWhileItIsCollected(t *testing.T) {
	w := newWorld(t)
	w.blob("mirror/a", "again")
	named := w.blob("mirror/a", "named")
	w.blob("mirror/a", "gone")
	w.age()
	w.settle = func(context.Context, time.Duration) error {
		if w.has("again") || w.has("named") {
			t.Error("the registry sees what is in the trash")
		}
		w.blob("mirror/b", "again") // sent again: there was none
		// By one who had seen it before.
		w.put("mirror/a", "copy-1", manifestOf(named))
		return nil
	}
	done := w.collect()
	if !w.has("again") || !w.has("named") || w.has("gone") {
		t.Error("the wrong ones are gone")
	}
	if done.KeptBlobs != 2 || done.FreedBlobs != 1 {
		t.Errorf("%+v", done)
	}
}

func TestACollectionThatBreaksOffIsGoneOnWith(t *testing.T) {
	w := newWorld(t)
	named := w.blob("mirror/a", "named")
	w.blob("mirror/a", "gone")
	w.age()
	broken := errors.New("broken off")
	w.settle = func(context.Context, time.Duration) error { return broken }
	if _, err := w.Collect(t.Context(), false); !errors.Is(err, broken) {
		t.Fatal(err)
	}
	w.put("mirror/a", "copy-1", manifestOf(named))
	// Another process.
	again, err := New(Options{Folder: w.layout.folder, Usual: w.usual, Urgent: w.urgent, Log: w.log})
	if err != nil {
		t.Fatal(err)
	}
	done, err := again.Collect(t.Context(), false)
	if err != nil || done.FreedBlobs != 1 || done.KeptBlobs != 1 {
		t.Errorf("%+v, %v", done, err)
	}
	if !w.has("named") || w.has("gone") {
		t.Error("the wrong ones are gone")
	}
}

func TestWhatWasMovedAMomentAgoIsNotDeletedByAnother(t *testing.T) {
	w := newWorld(t)
	w.usual.Settle = time.Hour
	w.blob("mirror/a", "gone")
	w.age()
	w.settle = func(context.Context, time.Duration) error { return context.Canceled }
	_, _ = w.Collect(t.Context(), false)
	done := w.collect()
	if batches, err := w.batches(); done.FreedBlobs != 0 || err != nil || len(batches) != 1 || len(batches[0].blobs) != 1 {
		t.Errorf("%+v, %v", done, err)
	}
}

func TestARemovalTakesAllThatLeadsToACopyAndNothingElse(t *testing.T) {
	w := newWorld(t)
	one, two := w.image("mirror/a", "", "one"), w.image("mirror/a", "copy-2", "two")
	copied := w.put("mirror/a", "copy-1", indexOf(one, two))
	w.put("mirror/a", "tag-latest", indexOf(copied))
	other := w.put("mirror/a", "tag-old", indexOf(two))
	w.age()
	if there, err := w.Remove("mirror/a", copied.String(), time.Now()); err != nil || !there {
		t.Fatal(there, err)
	}
	tags, err := tagsOf(w.layout.tags("mirror/a"))
	if err != nil || len(tags) != 2 || tags["copy-2"] != two || tags["tag-old"] != other {
		t.Errorf("%v, %v", tags, err)
	}
	w.collect()
	for h, stays := range map[hash]bool{one: false, copied: false, two: true, other: true} {
		if w.there(w.layout.revision("mirror/a", h)) != stays {
			t.Errorf("%s: %v", h, !stays)
		}
	}
	if w.has("one") || !w.has("two") {
		t.Error("the wrong ones are gone")
	}
	if there, err := w.Remove("mirror/a", copied.String(), time.Now()); err != nil || there {
		t.Error(there, err)
	}
}

// A push that comes in between writes the link anew, and it stays.
func TestWhatIsPushedWhileItIsRemovedStays(t *testing.T) {
	w := newWorld(t)
	made := w.image("mirror/a", "copy-1", "layer")
	w.age()
	w.step = func() {
		w.step = func() {}
		w.image("mirror/a", "copy-1", "layer")
	}
	if _, err := w.Remove("mirror/a", made.String(), time.Now().Add(-time.Minute)); err != nil {
		t.Fatal(err)
	}
	if there, err := w.Use("mirror/a", made.String()); err != nil || !there {
		t.Error(there, err)
	}
}

func TestAnIndexWithoutOneOfItsManifestsIsNoCopy(t *testing.T) {
	w := newWorld(t)
	one := w.image("mirror/a", "", "one")
	copied := w.put("mirror/a", "copy-1", indexOf(one))
	if err := removeLink(w.layout.revision("mirror/a", one)); err != nil {
		t.Fatal(err)
	}
	if there, err := w.Use("mirror/a", copied.String()); err != nil || there {
		t.Error(there, err)
	}
}

func TestWhatACollectionThatIsBrokenOffHasTakenIsBackAtOnce(t *testing.T) {
	w := newWorld(t)
	named := w.blob("mirror/a", "named")
	w.age()
	ctx, cancel := context.WithCancel(t.Context())
	steps := 0
	w.step = func() {
		if steps++; steps == 4 { // the scan's two, before the candidates, before the first rename
			w.put("mirror/a", "copy-1", manifestOf(named))
			cancel()
		}
	}
	if _, err := w.Collect(ctx, false); err == nil || !w.has("named") {
		t.Error(err, w.has("named"))
	}
}

func TestANewProcessGivesBackWhatIsNeeded(t *testing.T) {
	w := newWorld(t)
	named := w.blob("mirror/a", "named")
	w.age()
	batch, err := w.newBatch()
	if err == nil {
		err = os.Rename(w.layout.blob(named), filepath.Join(batch, named.hex()))
	}
	if err != nil {
		t.Fatal(err)
	}
	w.put("mirror/a", "copy-1", manifestOf(named))
	if err := w.Recover(t.Context()); err != nil || !w.has("named") {
		t.Error(err)
	}
}

func TestAManifestThatIsHalfWrittenStopsACollection(t *testing.T) {
	w := newWorld(t)
	made := w.image("mirror/a", "copy-1", "layer")
	w.age()
	w.write(w.layout.blob(made), manifestOf()[:10])
	if _, err := w.Collect(t.Context(), false); err == nil || !w.has("layer") {
		t.Error(err)
	}
}

func TestWhatIsUsedIsNotRemoved(t *testing.T) {
	w := newWorld(t)
	used := w.image("estargz/a", "copy-1", "layer")
	w.age()
	planned := time.Now().Add(-time.Minute)
	if there, err := w.Use("estargz/a", used.String()); err != nil || !there {
		t.Fatal(there, err)
	}
	_, err := w.Remove("estargz/a", used.String(), planned)
	if err == nil || problem.From(err).Code != problem.Conflict {
		t.Error(err)
	}
	if there, err := w.Use("estargz/b", used.String()); err != nil || there {
		t.Error(there, err)
	}
}

func TestACopyThatIsNotWholeIsNone(t *testing.T) {
	w := newWorld(t)
	broken := w.image("mirror/a", "copy-1", "layer", "lost")
	if err := os.Remove(w.layout.blob(hash(sha256.Sum256([]byte("lost"))))); err != nil {
		t.Fatal(err)
	}
	if there, err := w.Use("mirror/a", broken.String()); err != nil || there {
		t.Error(there, err)
	}
	if tags, err := tagsOf(w.layout.tags("mirror/a")); err != nil || len(tags) > 0 {
		t.Error("it is offered still", tags, err)
	}
}

func TestNothingButCopiesIsRemovedByName(t *testing.T) {
	w := newWorld(t)
	h := w.image("commits/alice/x", "id-1", "layer")
	for _, name := range []string{"commits/alice/x", "mirror/../commits/alice/x", "/mirror/a", "mirror/", ""} {
		if _, err := w.Remove(name, h.String(), time.Now()); err == nil || problem.From(err).Code != problem.InvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := w.Use(name, h.String()); err == nil || problem.From(err).Code != problem.InvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
	w.age()
	w.collect()
	if !w.has("layer") {
		t.Error("it is gone")
	}
}

func TestAManifestOfCopiesThatNoTagLeadsToGoesOnceItIsOld(t *testing.T) {
	w := newWorld(t)
	w.image("mirror/a", "", "left")
	w.image("commits/alice/x", "", "commit")
	w.age()
	w.image("mirror/a", "", "young")
	w.collect()
	if w.has("left") || !w.has("young") || !w.has("commit") {
		t.Error("the wrong ones are gone")
	}
}

func TestUploadsThatBrokeOffAreEnded(t *testing.T) {
	w := newWorld(t)
	w.image("mirror/a", "copy-1", "layer")
	w.write(filepath.Join(w.layout.uploads("mirror/a"), "one", "data"), []byte("part"))
	w.age()
	at := time.Now().Add(-old)
	if err := os.Chtimes(filepath.Join(w.layout.uploads("mirror/a"), "one"), at, at); err != nil {
		t.Fatal(err)
	}
	w.write(filepath.Join(w.layout.uploads("mirror/a"), "two", "data"), []byte("part"))
	if done := w.collect(); done.EndedUploads != 1 || !w.there(filepath.Join(w.layout.uploads("mirror/a"), "two", "data")) {
		t.Errorf("%+v", done)
	}
}

func TestRoomIsThatOfWhatItMayHave(t *testing.T) {
	w := newWorld(t)
	w.write(filepath.Join(w.layout.base(), "x"), make([]byte, 5<<20))
	w.capacity = 100 << 20
	w.measure()
	room, err := w.Room()
	if err != nil || room.Disk != w.capacity || room.Used < 5<<20 || room.Full {
		t.Errorf("%+v, %v", room, err)
	}
	w.capacity = room.Used + 100
	if room, err = w.Room(); err != nil || !room.Full {
		t.Errorf("%+v, %v", room, err)
	}
}

func TestTheListCountsWhatIsThere(t *testing.T) {
	w := newWorld(t)
	a := w.image("mirror/a", "copy-1", "shared", "a")
	w.put("mirror/a", "tag-latest", indexOf(a))
	w.image("commits/alice/x", "", "shared", "x")
	images, sizes, err := w.List(t.Context())
	if err != nil || len(images) != 2 || len(sizes) != 5 {
		t.Fatalf("%v, %v, %v", images, sizes, err)
	}
	for _, one := range images {
		if len(one.Parts) != 3 || time.Since(one.Used) > time.Minute {
			t.Errorf("%+v", one)
		}
	}
}

func FuzzManifestsAreReadOrRefused(f *testing.F) {
	f.Add(manifestOf(hash{1}, hash{2}))
	f.Add(indexOf(hash{3}))
	f.Add([]byte(`{"fsLayers":[{"blobSum":"sha256:00"}],"config":null,"layers":[{}]}`))
	f.Fuzz(func(t *testing.T, text []byte) { _, _ = namedIn(text) })
}
