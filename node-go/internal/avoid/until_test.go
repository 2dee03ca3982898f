package avoid

import (
	"testing"
	"time"
)

func TestAFullOneForgetsWhatIsOverAndThenWhatEndsFirst(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	kept := New(3, func() time.Time { return now })
	for name, seconds := range map[string]int{"a": 1, "b": 60, "c": 30} {
		kept.Set(name, now.Add(time.Duration(seconds)*time.Second))
	}
	now = now.Add(2 * time.Second)
	kept.Set("d", now.Add(time.Minute))
	want(t, kept, map[string]time.Duration{"a": 0, "b": 58 * time.Second, "c": 28 * time.Second, "d": time.Minute})
	kept.Set("e", now.Add(time.Minute))
	want(t, kept, map[string]time.Duration{"b": 58 * time.Second, "c": 0, "d": time.Minute, "e": time.Minute})
}

func TestAShorterPauseDoesNotEndALongerOne(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	kept := New(3, func() time.Time { return now })
	kept.Set("a", now.Add(time.Minute))
	kept.Set("a", now.Add(time.Second))
	want(t, kept, map[string]time.Duration{"a": time.Minute})
	now = now.Add(time.Minute)
	want(t, kept, map[string]time.Duration{"a": 0})
}

func want(t *testing.T, kept *Until, left map[string]time.Duration) {
	t.Helper()
	for name, wanted := range left {
		if got := kept.Left(name); got != wanted {
			t.Errorf("%s is left alone for %s, want %s", name, got, wanted)
		}
	}
}
