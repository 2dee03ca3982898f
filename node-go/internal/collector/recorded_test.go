package collector

import (
	"slices"
	"strings"
	"testing"
)

const (
	alice = "a11ce00000000000"
	bob   = "b0b0000000000000"
	what  = "-estargz-amd64-arm64"
)

var source = strings.Repeat("5", 64)

// recorded is a recorded copy of an owner.
func (w *world) recorded(owner, list string, layers ...string) hash {
	return w.image("estargz/a", "copy-"+source+what+"-"+owner+"-"+list, layers...)
}

// offered says what the starts of an owner get.
func (w *world) offered(owner string, copied hash) {
	w.put("estargz/a", "boot-"+source+what+"-"+owner+"00000000", indexOf(copied))
}

func (w *world) listed() map[hash]Stored {
	w.t.Helper()
	images, _, err := w.List(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	found := map[hash]Stored{}
	for _, one := range images {
		found[one.Digest] = one
	}
	return found
}

func TestOfARecordedCopyItIsToldWhoseItIsAndWhetherAnybodyIsGivenIt(t *testing.T) {
	w := newWorld(t)
	common := w.image("estargz/a", "copy-"+source+what, "common")
	w.put("estargz/a", "boot-"+source+what, indexOf(common))
	superseded := w.recorded(alice, "000000000001", "one")
	now := w.recorded(alice, "000000000002", "two")
	w.recorded(bob, "000000000003", "two")
	w.offered(alice, superseded)
	w.offered(alice, now)
	plain := w.image("mirror/a", "copy-"+source+"-plain-amd64", "plain")
	found := w.listed()
	for h, want := range map[hash]Stored{
		common:     {},
		plain:      {},
		superseded: {Recorded: true, Owners: []string{alice}},
		now:        {Recorded: true, Owners: []string{alice, bob}, Offered: true},
	} {
		got := found[h]
		if got.Recorded != want.Recorded || got.Offered != want.Offered || !slices.Equal(got.Owners, want.Owners) || len(got.Sources) == 0 {
			t.Errorf("%s: %+v, want %+v", h, got, want)
		}
	}
}

func TestACopyThatAllOwnersHaveTooIsNoOwners(t *testing.T) {
	w := newWorld(t)
	copied := w.image("estargz/a", "copy-"+source+what, "same")
	w.recorded(alice, "000000000001", "same")
	w.offered(alice, copied)
	if got := w.listed()[copied]; got.Recorded || got.Offered || len(got.Owners) > 0 {
		t.Errorf("%+v", got)
	}
}

func TestWhatAnOwnersRecordedCopiesTakeCountsOnce(t *testing.T) {
	w := newWorld(t)
	w.image("estargz/a", "copy-"+source+what, "common", "shared")
	one, two := w.recorded(alice, "000000000001", "one", "shared"), w.recorded(alice, "000000000002", "two2", "shared")
	w.image("estargz/deep/er/b", "copy-"+source+what+"-"+alice+"-000000000001", "one", "shared")
	w.recorded(bob, "000000000003", "three")
	w.offered(alice, one)
	manifests := 2 * int64(len(manifestOf(hash{}, hash{})))
	if copies, total, err := w.RecordedBy(t.Context(), alice); err != nil || copies != 2 || total != manifests+int64(len("onetwo2shared")) {
		t.Error(copies, total, err)
	}
	// While a collection is under way.
	if err := w.rounds.Acquire(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if copies, _, err := w.RecordedBy(t.Context(), bob); err != nil || copies != 1 {
		t.Error(copies, err)
	}
	w.rounds.Release(1)
	if _, err := w.Remove("estargz/a", two.String(), w.listed()[two].Used); err != nil {
		t.Fatal(err)
	}
	if copies, _, err := w.RecordedBy(t.Context(), alice); err != nil || copies != 1 {
		t.Error(copies, err)
	}
	if copies, total, err := w.RecordedBy(t.Context(), "c000000000000000"); err != nil || copies != 0 || total != 0 {
		t.Error(copies, total, err)
	}
}
