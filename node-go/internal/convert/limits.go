// Package convert turns container images into images that can be mounted lazily: each layer into the eStargz form, in
// which every file is found without reading those before it.
//
// What is converted comes from users and may be made to do harm: everything about it is bounded, nothing of it is ever
// unpacked, and the result is compared with it, file by file, before anybody gets it.
package convert

import "fmt"

// Limits bound what a conversion reads, writes and keeps in memory.
type Limits struct {
	// Layers is how many an image may have.
	Layers int
	// LayerBytes is the size of one layer, decompressed; ImageBytes that of all.
	LayerBytes, ImageBytes int64
	// Entries is how many files, folders and links a layer may have; see LimitsFor.
	Entries int
	// HeaderBytes is how long the names, the targets of links and the extended attributes of a layer are together: whoever
	// reads a layer keeps them in memory, and one entry may have a MiB of them.
	HeaderBytes int64
	// Duplicates is how many entries of a layer may replace earlier ones of the same name.
	Duplicates int
}

// LimitsFor returns limits that hold for a process that may take so much memory for one conversion. An entry takes 3 KiB,
// as measured with short names and without attributes; what it has of these counts as HeaderBytes.
func LimitsFor(memory int64) Limits {
	return Limits{
		Layers:      127,
		LayerBytes:  64 << 30,
		ImageBytes:  128 << 30,
		Entries:     int(memory / (8 << 10)),
		HeaderBytes: memory / 8,
		Duplicates:  1 << 10,
	}
}

// Within returns limits that hold for a folder with so much room: the finished layers, which are no larger than what is in
// them but for a little, and twice the largest one.
func (l Limits) Within(room int64) Limits {
	l.LayerBytes, l.ImageBytes = min(l.LayerBytes, room/5), min(l.ImageBytes, room/5*2)
	return l
}

// DefaultLimits hold for a process with 2 GiB of memory.
var DefaultLimits = LimitsFor(2 << 30)

// maxName is the longest path that Linux takes.
const maxName = 4096

// RefusedError is an image that is not converted, whatever is tried: the plain one is to be used.
type RefusedError struct{ Why string }

func (e *RefusedError) Error() string { return e.Why }

func refused(format string, values ...any) error {
	return &RefusedError{fmt.Sprintf(format, values...)}
}
