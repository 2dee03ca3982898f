package layer

import (
	"archive/tar"
	"errors"
	"io"
	"strconv"
	"testing"
)

// bound is that of an agent with the chart's memory.
var bound = Within(512<<20, 2)

// A sandbox with a billion files lists for as long as it is read: it is not read further than what a layer takes.
func TestAListingWithoutEndIsReadUpToItsLimit(t *testing.T) {
	from, into := io.Pipe()
	listed := make(chan int)
	go func() {
		archive := tar.NewWriter(into)
		err := archive.WriteHeader(&tar.Header{Name: "./", Typeflag: tar.TypeDir})
		count := 1
		for ; err == nil; count++ {
			err = archive.WriteHeader(&tar.Header{Name: "./" + strconv.Itoa(count), Typeflag: tar.TypeFifo})
		}
		listed <- count
	}()
	if _, err := List(from, bound); !errors.Is(err, ErrTooMany) {
		t.Errorf("%v", err)
	}
	_ = from.Close()
	if count := <-listed; count < bound.Entries || count > bound.Entries+10 {
		t.Errorf("%d were read", count)
	}
}
