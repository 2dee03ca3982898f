package peers

import (
	"context"
	"strconv"
	"sync"
	"time"
)

const (
	// Nodes that fetch one layer from the registry at the same time: a second one, should the first be slow or end.
	fromRegistry = 2
	// Nodes to which one node sends one layer at the same time. Fewer are done sooner, and send themselves.
	sentByOne = 2
	// A node waits so long for one of those that have the layer, since the last news of any and twice as long in all,
	// before it asks the registry all the same. And after each such time of a wait twice as many nodes may fetch it from
	// the registry: a layer of many gigabytes is not worth the wait for the first ones.
	patience = 30 * time.Second
	// So often it is doubled.
	mostDoubled = 4
	// A lease that was not renewed lapses: its node has ended.
	leaseFor = 60 * time.Second
	// What a node has said that it has, until it says so again.
	heldFor = 25 * time.Minute
	// Layers of which a tracker keeps who has them, and nodes of each that it keeps.
	maxTracked = 100_000
	maxHolders = 64
)

// tracker keeps which nodes have some layers, and who gets one from whom. It is in memory alone: a tracker that has just
// started lets a few ask the registry, and is told within minutes.
type tracker struct {
	now    func() time.Time
	mutex  sync.Mutex
	next   uint64
	layers map[string]*tracked
}

type tracked struct {
	// Until when each node is believed to have it.
	holders map[string]time.Time
	leases  map[string]*lease
	// Closed when there is something new to be had.
	news chan struct{}
}

// lease is a transfer: to a node, from another one or, where `from` is empty, from the registry.
type lease struct {
	from  string
	until time.Time
}

// grant says from whom a node gets a layer; without `From` it is the registry.
type grant struct {
	From  string `json:"from"`
	Lease string `json:"lease"`
}

func newTracker(now func() time.Time) *tracker {
	return &tracker{now: now, layers: map[string]*tracked{}}
}

// ask returns from whom a node gets a layer. It waits while all that have the layer send it to as many as they may, and
// where none has it, while as many as may do so fetch it from the registry; at the end of the context it is the registry,
// without a lease.
func (t *tracker) ask(ctx context.Context, digest, node string) grant {
	begun := t.now()
	since := begun
	for {
		waited := t.now().Sub(begun)
		impatient := t.now().Sub(since) >= patience || waited >= 2*patience
		found, news := t.grant(digest, node, impatient, fromRegistry<<min(waited/patience, mostDoubled))
		if found != nil {
			return *found
		}
		// A lease lapses, and nobody says so.
		timer := time.NewTimer(leaseFor / 4)
		select {
		case <-ctx.Done():
			timer.Stop()
			return grant{}
		case <-news:
			since = t.now()
		case <-timer.C:
		}
		timer.Stop()
	}
}

// grant is ask without a wait: nothing where it has to be waited. As many nodes as `most` may fetch from the registry.
func (t *tracker) grant(digest, node string, impatient bool, most int) (*grant, <-chan struct{}) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	layer := t.layer(digest)
	now := t.now()
	sending, fetching := layer.count(now)
	from, fewest, others := "", sentByOne, false
	for name := range layer.holders {
		others = others || name != node
		if name != node && sending[name] < fewest {
			from, fewest = name, sending[name]
		}
	}
	if from == "" && (fetching >= most || others && !impatient) {
		return nil, layer.news
	}
	t.next++
	id := strconv.FormatUint(t.next, 10)
	layer.leases[id] = &lease{from, now.Add(leaseFor)}
	return &grant{from, id}, nil
}

// renew says that a transfer goes on.
func (t *tracker) renew(digest, id string) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if layer := t.layers[digest]; layer != nil && layer.leases[id] != nil {
		layer.leases[id].until = t.now().Add(leaseFor)
	}
}

// done says that a transfer is over; `gone`: the node that was to send the layer does not have it.
func (t *tracker) done(digest, id string, gone bool) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	layer := t.layers[digest]
	if layer == nil || layer.leases[id] == nil {
		return
	}
	if gone {
		delete(layer.holders, layer.leases[id].from)
	}
	delete(layer.leases, id)
	layer.tell()
}

// have says that a node has layers.
func (t *tracker) have(node string, digests []string) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	until := t.now().Add(heldFor)
	for _, digest := range digests {
		layer := t.layer(digest)
		if layer.holders[node].IsZero() && len(layer.holders) >= maxHolders {
			continue
		}
		layer.holders[node] = until
		layer.tell()
	}
}

// layer is called with the mutex.
func (t *tracker) layer(digest string) *tracked {
	if layer := t.layers[digest]; layer != nil {
		return layer
	}
	if len(t.layers) >= maxTracked {
		t.makeRoom()
	}
	layer := &tracked{holders: map[string]time.Time{}, leases: map[string]*lease{}, news: make(chan struct{})}
	t.layers[digest] = layer
	return layer
}

// makeRoom forgets layers that nobody transfers now: it is told of them again.
func (t *tracker) makeRoom() {
	for digest, layer := range t.layers {
		if len(layer.leases) == 0 {
			delete(t.layers, digest)
		}
		if len(t.layers) < maxTracked-maxTracked/10 {
			return
		}
	}
}

// count returns to how many each node sends the layer, and how many fetch it from the registry; what has lapsed is
// forgotten.
func (l *tracked) count(now time.Time) (map[string]int, int) {
	sending, fetching := map[string]int{}, 0
	for id, one := range l.leases {
		switch {
		case now.After(one.until):
			delete(l.leases, id)
		case one.from == "":
			fetching++
		default:
			sending[one.from]++
		}
	}
	for name, until := range l.holders {
		if now.After(until) {
			delete(l.holders, name)
		}
	}
	return sending, fetching
}

func (l *tracked) tell() {
	close(l.news)
	l.news = make(chan struct{})
}
