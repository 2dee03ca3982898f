package layer

import (
	"archive/tar"
	"errors"
	"io"
	"strconv"
	"testing"
)

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
	if _, err := List(from); !errors.Is(err, ErrTooMany) {
		t.Errorf("%v", err)
	}
	_ = from.Close()
	if count := <-listed; count < MaxEntries || count > MaxEntries+10 {
		t.Errorf("%d were read", count)
	}
}
