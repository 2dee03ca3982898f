package peers

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"
)

var layerOne = "sha256:" + strings.Repeat("1", 64)

type clock struct{ at time.Time }

func (c *clock) now() time.Time { return c.at }

func newClock() *clock { return &clock{time.Unix(1_000_000, 0)} }

// now returns what a node gets without waiting; nil: it has to wait.
func now(t *tracker, node string) *grant {
	found, _ := t.grant(layerOne, node, false, fromRegistry)
	return found
}

func TestFewAskTheRegistryAndTheOthersGetItFromThem(t *testing.T) {
	kept := newTracker(newClock().now)
	first, second := now(kept, "a"), now(kept, "b")
	if first.From != "" || second.From != "" || first.Lease == second.Lease {
		t.Fatalf("%v %v", first, second)
	}
	if third := now(kept, "c"); third != nil {
		t.Fatalf("%v", third)
	}
	kept.have("a", []string{layerOne})
	kept.done(layerOne, first.Lease, false)
	for _, node := range []string{"c", "d"} {
		if found := now(kept, node); found == nil || found.From != "a" {
			t.Errorf("%s: %v", node, found)
		}
	}
	// It sends to two. A place at the registry is free: one node takes it once it has waited for long.
	if found := now(kept, "e"); found != nil {
		t.Errorf("%v", found)
	}
	if found, _ := kept.grant(layerOne, "e", true, fromRegistry); found == nil || found.From != "" {
		t.Errorf("%v", found)
	}
	if found, _ := kept.grant(layerOne, "f", true, fromRegistry); found != nil {
		t.Errorf("%v", found)
	}
}

func TestANodeIsNeverSentToItselfAndOneThatHasNothingIsForgotten(t *testing.T) {
	kept := newTracker(newClock().now)
	kept.have("a", []string{layerOne})
	if found := now(kept, "a"); found.From != "" {
		t.Errorf("%v", found)
	}
	found := now(kept, "b")
	if found.From != "a" {
		t.Fatalf("%v", found)
	}
	kept.done(layerOne, found.Lease, true)
	if found := now(kept, "b"); found.From != "" {
		t.Errorf("%v", found)
	}
}

func TestWhatIsNotRenewedLapses(t *testing.T) {
	time := newClock()
	kept := newTracker(time.now)
	first := now(kept, "a")
	now(kept, "b")
	time.at = time.at.Add(leaseFor)
	kept.renew(layerOne, first.Lease)
	time.at = time.at.Add(1)
	if found := now(kept, "c"); found == nil {
		t.Fatal("the place of b is free")
	}
	if found := now(kept, "d"); found != nil {
		t.Fatalf("%v", found)
	}
	kept.have("z", []string{layerOne})
	time.at = time.at.Add(heldFor + 1)
	if found := now(kept, "d"); found == nil || found.From != "" {
		t.Errorf("what a node has said long ago is not believed: %v", found)
	}
	// Nothing that is not known does anything.
	kept.renew("sha256:other", "7")
	kept.done("sha256:other", "7", true)
	kept.done(layerOne, "no lease", true)
}

func TestAWaitEndsWithNewsOrWithItsTime(t *testing.T) {
	kept := newTracker(time.Now)
	first := now(kept, "a")
	now(kept, "b")
	got := make(chan grant)
	go func() { got <- kept.ask(context.Background(), layerOne, "c") }()
	kept.have("a", []string{layerOne})
	kept.done(layerOne, first.Lease, false)
	if found := <-got; found.From != "a" {
		t.Errorf("%v", found)
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	kept.ask(ended, layerOne, "d")
	now(kept, "e")
	if found := kept.ask(ended, layerOne, "f"); found != (grant{}) {
		t.Errorf("%v", found)
	}
}

func TestWhoHasWaitedForLongIsNotKeptFromTheRegistryByFew(t *testing.T) {
	time := newClock()
	kept := newTracker(time.now)
	now(kept, "a")
	now(kept, "b")
	time.at = time.at.Add(patience)
	if found, _ := kept.grant(layerOne, "c", true, fromRegistry); found != nil {
		t.Errorf("%v", found)
	}
	if found, _ := kept.grant(layerOne, "c", true, 2*fromRegistry); found == nil || found.From != "" {
		t.Errorf("%v", found)
	}
}

func TestWhatATrackerKeepsIsBounded(t *testing.T) {
	kept := newTracker(newClock().now)
	lease := now(kept, "a")
	for number := range maxTracked + 10 {
		kept.have("n", []string{fmt.Sprintf("sha256:%064x", number)})
	}
	if len(kept.layers) > maxTracked {
		t.Errorf("%d layers", len(kept.layers))
	}
	if kept.layers[layerOne] == nil || kept.layers[layerOne].leases[lease.Lease] == nil {
		t.Error("what is transferred now was forgotten")
	}
	for number := range 2 * maxHolders {
		kept.have(fmt.Sprint(number), []string{layerOne})
	}
	if count := len(kept.layers[layerOne].holders); count != maxHolders {
		t.Errorf("%d holders", count)
	}
}

func TestAHerdOfNodesAsksTheRegistryTwice(t *testing.T) {
	// Rounds in which every transfer takes one step of time.
	kept := newTracker(newClock().now)
	waiting := map[string]bool{}
	for number := range 100 {
		waiting[fmt.Sprint(number)] = true
	}
	registry, rounds := 0, 0
	for len(waiting) > 0 {
		got := map[string]*grant{}
		for node := range waiting {
			if found := now(kept, node); found != nil {
				got[node] = found
				if found.From == "" {
					registry++
				}
			}
		}
		if rounds++; len(got) == 0 || rounds > 100 {
			t.Fatalf("nobody gets anything, %d wait", len(waiting))
		}
		for node, found := range got {
			kept.have(node, []string{layerOne})
			kept.done(layerOne, found.Lease, false)
			delete(waiting, node)
		}
	}
	t.Logf("%d rounds, the registry was asked %d times", rounds, registry)
	if rounds > 6 || registry > fromRegistry {
		t.Errorf("%d rounds, the registry was asked %d times", rounds, registry)
	}
}
