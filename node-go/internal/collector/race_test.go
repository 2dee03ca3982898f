package collector

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"
)

// Pushes as Distribution does them, one operation on files at a time, with a collection's own steps between any two. A
// call to the registry that has begun is over once the collection has settled, and a push may pause between calls for
// ever. Blobs are few, so that pushes meet what is being collected: what was there before is old.
type pusher struct {
	*world
	random     *rand.Rand
	repository string
	layers     []string
	done       func(hash)
}

// inCall and between are what a step tells: whether the call to the registry goes on.
const (
	inCall  = true
	between = false
)

func (p *pusher) steps() iter.Seq[bool] {
	return func(yield func(bool) bool) {
		for !p.push(yield) {
			if !yield(between) {
				return
			}
		}
	}
}

// push returns false where the registry refuses the manifest: everything is sent again.
func (p *pusher) push(yield func(bool) bool) bool {
	var named []hash
	for _, content := range p.layers {
		h := hash(sha256.Sum256([]byte(content)))
		named = append(named, h)
		if !yield(between) {
			return true
		}
		// HEAD.
		if p.known(p.repository, h) {
			continue
		}
		if !p.mount(yield, h) && !p.upload(yield, h, content) {
			return true
		}
	}
	if !yield(between) {
		return true
	}
	for _, h := range named {
		if !p.known(p.repository, h) {
			return false
		}
		if !yield(inCall) {
			return true
		}
	}
	text := manifestOf(named...)
	h := hash(sha256.Sum256(text))
	if !p.there(p.layout.blob(h)) {
		if !yield(inCall) {
			return true
		}
		p.write(p.layout.blob(h), text)
	}
	if !yield(inCall) {
		return true
	}
	p.put(p.repository, "copy-"+h.hex()[:8], text)
	return p.noted(yield, h)
}

// noted notes the use of a copy, as starts do; one that is gone by then is copied again.
func (p *pusher) noted(yield func(bool) bool, h hash) bool {
	for isCopy(p.repository) {
		if !yield(between) {
			return true
		}
		// In the middle of a removal it would wait.
		if !p.copies.TryLock() {
			continue
		}
		p.copies.Unlock()
		there, err := p.Use(p.repository, h.String())
		if err != nil {
			p.t.Fatal(err)
		}
		if !there {
			return false
		}
		break
	}
	p.done(h)
	return true
}

func (p *pusher) known(repository string, h hash) bool {
	return p.there(p.layout.layer(repository, h)) && p.there(p.layout.blob(h))
}

func (p *pusher) mount(yield func(bool) bool, h hash) bool {
	if p.random.IntN(2) == 0 || !p.known("mirror/old", h) {
		return false
	}
	if !yield(inCall) {
		return true
	}
	p.write(p.layout.layer(p.repository, h), []byte(h.String()))
	return true
}

func (p *pusher) upload(yield func(bool) bool, h hash, content string) bool {
	there := p.there(p.layout.blob(h))
	if !yield(inCall) {
		return false
	}
	if !there {
		p.write(p.layout.blob(h), []byte(content))
	}
	if !yield(inCall) {
		return false
	}
	p.write(p.layout.layer(p.repository, h), []byte(h.String()))
	return true
}

// running is a push on its way.
type running struct {
	next func() (bool, bool)
	call bool
	over bool
}

func (r *running) step() {
	if !r.over {
		call, more := r.next()
		r.call, r.over = more && call, !more
	}
}

// killed is what a process that is killed does at a step.
type killed struct{}

func TestNoPushLosesABlobToACollection(t *testing.T) {
	for seed := range uint64(40) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { raced(t, rand.New(rand.NewPCG(seed, 1))) })
	}
}

func raced(t *testing.T, random *rand.Rand) {
	w := newWorld(t)
	contents := []string{"a", "b", "c", "d"}
	for _, one := range contents {
		w.blob("mirror/old", one)
		w.blob("mirror/new", one)
	}
	w.age()
	stored := map[hash]bool{}
	var pushes []*running
	begin := func() {
		own := slices.Clone(contents)
		random.Shuffle(len(own), func(a, b int) { own[a], own[b] = own[b], own[a] })
		own = own[:1+random.IntN(len(own))]
		in := []string{"mirror/new", "commits/x"}[random.IntN(2)]
		next, stop := iter.Pull((&pusher{w, random, in, own, func(h hash) { stored[h] = true }}).steps())
		t.Cleanup(stop)
		pushes = append(pushes, &running{next: next})
	}
	some := func() {
		for range random.IntN(4) {
			pushes[random.IntN(len(pushes))].step()
		}
	}
	w.some = some
	w.step = func() {
		some()
		if len(stored) > 0 && random.IntN(10) == 0 && w.copies.TryLock() {
			w.copies.Unlock()
			w.removeOne(random, stored)
		}
		if random.IntN(40) == 0 {
			panic(killed{})
		}
	}
	// Calls that began before a file was moved are over when it is judged; so it is for a process that was killed, too.
	settle := func() {
		for _, one := range pushes {
			for one.call {
				one.step()
			}
		}
	}
	w.settle = settledBy(settle, some)
	for range 6 {
		// What is named by nothing is old again, also where a push takes longer than that.
		w.age()
		for range 3 {
			begin()
		}
		for range random.IntN(40) {
			pushes[random.IntN(len(pushes))].step()
		}
		died := w.roundOrDeath()
		settle()
		w.every(stored, "after a collection", died)
		for h := range stored {
			// So that what it has is garbage again.
			if random.IntN(2) == 0 {
				w.unname(h)
				delete(stored, h)
			}
		}
	}
	for _, one := range pushes {
		for !one.over {
			one.step()
		}
	}
	w.step = func() {}
	w.collect()
	w.every(stored, "at the end", false)
}

// unname removes an image by Distribution's own means: its tags, and its manifest's link.
func (w *world) unname(h hash) {
	for _, repository := range []string{"mirror/new", "commits/x"} {
		_ = w.removeTag(repository, "copy-"+h.hex()[:8])
		if err := removeLink(w.layout.revision(repository, h)); err != nil {
			w.t.Fatal(err)
		}
	}
}

// every checks that each image has its blobs; of a collection that was killed some may be in the trash.
func (w *world) every(stored map[hash]bool, when string, orInTrash bool) {
	w.t.Helper()
	batches, err := w.batches()
	if err != nil {
		w.t.Fatal(err)
	}
	kept := map[hash]bool{}
	for _, one := range batches {
		for _, h := range one.blobs {
			kept[h] = orInTrash
		}
	}
	for h := range stored {
		if !w.there(w.layout.revision("mirror/new", h)) && !w.there(w.layout.revision("commits/x", h)) {
			w.t.Fatalf("%s: an image has lost its link", when)
		}
		text, err := os.ReadFile(w.layout.blob(h))
		if err != nil && kept[h] {
			continue
		}
		names, wrong := namedIn(text)
		if err != nil || wrong != nil {
			w.t.Fatalf("%s: %v, %v", when, err, wrong)
		}
		for _, one := range names.blobs {
			if !w.there(w.layout.blob(one)) && !kept[one] {
				w.t.Fatalf("%s: an image has lost %s", when, one)
			}
		}
	}
}

func (w *world) roundOrDeath() (died bool) {
	defer func() {
		if found := recover(); found != nil {
			if _, is := found.(killed); !is {
				panic(found)
			}
			died = true
		}
	}()
	_, err := w.Collect(w.t.Context(), false)
	if err != nil {
		w.t.Fatal(err)
	}
	return false
}

// removeOne removes a copy that was not used for long, while pushes of the same one may be under way.
func (w *world) removeOne(random *rand.Rand, stored map[hash]bool) {
	all := slices.SortedFunc(maps.Keys(stored), func(a, b hash) int { return bytes.Compare(a[:], b[:]) })
	h := all[random.IntN(len(all))]
	step := w.step
	w.step = func() {
		w.step = step
		// It takes no steps of a collection, and is not killed.
		w.some()
	}
	_, inCommits := os.Lstat(w.layout.revision("commits/x", h))
	there, err := w.Remove("mirror/new", h.String(), time.Now().Add(-old/2))
	w.step = step
	if err == nil && there && inCommits != nil && !w.there(w.layout.revision("mirror/new", h)) {
		delete(stored, h)
	}
}

func settledBy(steps ...func()) func(context.Context, time.Duration) error {
	return func(context.Context, time.Duration) error {
		for _, one := range steps {
			one()
		}
		return nil
	}
}
