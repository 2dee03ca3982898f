package convert

import "testing"

func TestWhatAConversionMayTakeFollowsMemoryAndRoom(t *testing.T) {
	limits := LimitsFor(512 << 20).Within(10 << 30)
	if limits.Entries != 65_536 || limits.HeaderBytes != 64<<20 {
		t.Error(limits)
	}
	// The finished layers, and twice the largest one, with room to spare for what the form adds.
	if taken := limits.ImageBytes + 2*limits.LayerBytes; taken > 9<<30 || limits.LayerBytes != 2<<30 {
		t.Error(taken, limits)
	}
	if limits := DefaultLimits.Within(1 << 50); limits.LayerBytes != 64<<30 || limits.ImageBytes != 128<<30 {
		t.Error(limits)
	}
}
