package images

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"sync"

	"rollbox.dev/node/internal/wire"
)

// What is remembered of earlier lists: some hundred kilobytes. Callers ask once a minute, so these are hours of a node
// on which images come and go; who knows a list from before gets all of the one that holds now.
const (
	mostVersions = 256
	mostGone     = 4096
)

// markOf stands for all of an image that a caller wants to know soon.
func markOf(one *wire.Image) uint64 {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %s %d %t %t %d",
		one.GetNames(), one.GetDigests(), one.GetId(), one.GetSizeBytes(), one.GetPinned(), one.GetLazy(), len(one.GetLayers())))
	// 0 stands for none.
	return max(1, binary.BigEndian.Uint64(sum[:]))
}

// versionOf is as contract/node.proto says.
func versionOf(marks map[uint64]bool) string {
	sum := sha256.New()
	for _, mark := range slices.Sorted(maps.Keys(marks)) {
		_ = binary.Write(sum, binary.BigEndian, mark) // a hash takes everything
	}
	return hex.EncodeToString(sum.Sum(nil)[:16])
}

// history knows what has changed between lists: each that differs from the one before has the next number.
type history struct {
	mutex    sync.Mutex
	number   uint64
	came     map[uint64]uint64 // marks of the last list, and with which list each came
	gone     []departure       // in order
	versions []version         // in order
	// The lists before this one are forgotten.
	oldest uint64
}

type departure struct{ mark, number uint64 }

type version struct {
	text   string
	number uint64
}

func newHistory() *history { return &history{came: map[uint64]uint64{}} }

// since takes in a list, by its version and its marks, and returns what of it came and what has gone since an earlier
// one; false: that is not remembered. Cost: a pass over both.
func (h *history) since(known, now string, marks map[uint64]bool) (came map[uint64]bool, gone []uint64, remembered bool) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	h.take(now, marks)
	after, remembered := h.last(known)
	if !remembered {
		return nil, nil, false
	}
	came = map[uint64]bool{}
	for mark, number := range h.came {
		if number > after {
			came[mark] = true
		}
	}
	for _, one := range h.gone {
		if one.number > after {
			gone = append(gone, one.mark)
		}
	}
	return came, gone, true
}

// last returns the number of the last list with a version.
func (h *history) last(text string) (uint64, bool) {
	for _, one := range slices.Backward(h.versions) {
		if one.text == text {
			return one.number, one.number >= h.oldest
		}
	}
	return 0, false
}

func (h *history) take(now string, marks map[uint64]bool) {
	if last := len(h.versions) - 1; last >= 0 && h.versions[last].text == now {
		return
	}
	h.number++
	for mark := range h.came {
		if !marks[mark] {
			delete(h.came, mark)
			h.gone = append(h.gone, departure{mark, h.number})
		}
	}
	for mark := range marks {
		if _, there := h.came[mark]; !there {
			h.came[mark] = h.number
		}
	}
	h.versions = append(h.versions, version{now, h.number})
	h.forget()
}

func (h *history) forget() {
	if over := len(h.versions) - mostVersions; over > 0 {
		h.versions = slices.Delete(h.versions, 0, over)
	}
	if over := len(h.gone) - mostGone; over > 0 {
		h.oldest = h.gone[over-1].number
		h.gone = slices.Delete(h.gone, 0, over)
	}
}
