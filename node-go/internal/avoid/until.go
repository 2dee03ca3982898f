// Package avoid remembers, by name, until when something is left alone.
package avoid

import (
	"sync"
	"time"
)

// Until is bounded: when it is full, those that are over go first, then the one that ends first. Safe for use by many
// goroutines.
type Until struct {
	most int
	now  func() time.Time

	mu    sync.Mutex
	until map[string]time.Time
}

// New returns an empty one.
//
//   - most: how many names are kept.
//   - now: the time.
func New(most int, now func() time.Time) *Until {
	return &Until{most: most, now: now, until: map[string]time.Time{}}
}

// Set leaves a name alone until then, unless it is left alone for longer already. Cost: O(1), O(most) when it is full.
func (p *Until) Set(name string, until time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if before, known := p.until[name]; known {
		if until.After(before) {
			p.until[name] = until
		}
		return
	}
	if len(p.until) >= p.most {
		p.drop()
	}
	p.until[name] = until
}

// Left returns for how long a name is still left alone; 0: it is not.
func (p *Until) Left(name string) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	until, known := p.until[name]
	if !known {
		return 0
	}
	left := until.Sub(p.now())
	if left <= 0 {
		delete(p.until, name)
		return 0
	}
	return left
}

// drop removes what is over, and the one that ends first where nothing is.
func (p *Until) drop() {
	now, first := p.now(), ""
	for name, until := range p.until {
		if !until.After(now) {
			delete(p.until, name)
		} else if first == "" || until.Before(p.until[first]) {
			first = name
		}
	}
	if len(p.until) >= p.most {
		delete(p.until, first)
	}
}
