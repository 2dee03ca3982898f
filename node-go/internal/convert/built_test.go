package convert

import (
	"fmt"
	"slices"
	"testing"

	"github.com/containerd/stargz-snapshotter/estargz"
)

func TestAnImageKeepsTheOrderThatItWasBuiltWithUnlessThereIsAList(t *testing.T) {
	lower := archive(t, folder("etc"), plainFile("etc/a", "1"), plainFile("etc/b", "1"), plainFile("etc/c", "1"))
	upper := archive(t, plainFile("d", "1"), plainFile("e", "1"))
	built := converted(t, imageOf(t, layerOf(t, lower), layerOf(t, upper)), Options{First: []string{"/etc/c", "/e", "/etc/b"}})
	want := [][]string{{"etc/c", "etc/b"}, {"e"}}
	if got := before(t, built); !slices.EqualFunc(got, want, slices.Equal) {
		t.Fatalf("built with %q", got)
	}
	again := converted(t, built, Options{})
	if got := before(t, again); !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("converted again: %q", got)
	}
	other := [][]string{{"etc/a"}, nil}
	if got := before(t, converted(t, again, Options{First: []string{"/etc/a"}})); !slices.EqualFunc(got, other, slices.Equal) {
		t.Errorf("with another list: %q", got)
	}
}

func TestWhatALayerOfAnotherFormHasFirstSaysNothing(t *testing.T) {
	for title, end := range map[string]file{
		"no landmark":           plainFile("z", "1"),
		"that nothing is first": plainFile(estargz.NoPrefetchLandmark, "\x0f"),
		"one in a folder":       plainFile("etc/"+estargz.PrefetchLandmark, "\x0f"),
	} {
		layer := archive(t, folder("etc"), plainFile("etc/a", "1"), end, plainFile("etc/b", "1"))
		if got := before(t, converted(t, imageOf(t, layerOf(t, layer)), Options{})); len(got[0]) != 0 {
			t.Errorf("%s: %q", title, got)
		}
	}
}

func TestHowManyFilesABuiltImageHasFirstIsBounded(t *testing.T) {
	for files, kept := range map[int]bool{mostBuilt: true, mostBuilt + 1: false} {
		order := builtOrder{}
		for number := range files {
			order.add(fmt.Sprint(number), '0')
		}
		order.add(estargz.PrefetchLandmark, '0')
		if got := len(order.first()); (got == files) != kept || !kept && got != 0 {
			t.Errorf("%d of %d", got, files)
		}
	}
}
