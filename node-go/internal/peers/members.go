package peers

import (
	"cmp"
	"context"
	"hash/fnv"
	"net"
	"slices"
	"strings"
	"sync"
)

// members are the nodes that take part, by their addresses; each process knows them all.
type members struct {
	self    string
	mutex   sync.RWMutex
	all     []string
	resolve func(ctx context.Context) ([]string, error)
}

func newMembers(self string, resolve func(context.Context) ([]string, error)) *members {
	return &members{self: self, all: []string{self}, resolve: resolve}
}

// look finds out who takes part now; it returns whether that has changed.
func (m *members) look(ctx context.Context) (bool, error) {
	found, err := m.resolve(ctx)
	if err != nil {
		return false, err
	}
	found = append(found, m.self)
	slices.Sort(found)
	found = slices.Compact(found)
	m.mutex.Lock()
	defer m.mutex.Unlock()
	changed := !slices.Equal(found, m.all)
	m.all = found
	return changed, nil
}

// knows says whether an address is a member's.
func (m *members) knows(address string) bool {
	m.mutex.RLock()
	defer m.mutex.RUnlock()
	return slices.Contains(m.all, address)
}

// trackers returns the nodes that keep who has a layer, the first of them and the next to be asked when it is away. All
// processes that know the same members agree on them.
func (m *members) trackers(digest string) []string {
	m.mutex.RLock()
	defer m.mutex.RUnlock()
	var first, second string
	var most, next uint64
	for _, one := range m.all {
		switch weight := weigh(digest, one); {
		case first == "" || weight > most:
			first, second, most, next = one, first, weight, most
		case second == "" || weight > next:
			second, next = one, weight
		}
	}
	if second == "" {
		return []string{first}
	}
	return []string{first, second}
}

func weigh(digest, node string) uint64 {
	sum := fnv.New64a()
	_, _ = sum.Write([]byte(digest))
	_, _ = sum.Write([]byte{0})
	_, _ = sum.Write([]byte(node))
	// The last byte alone moves only the low bits: they are spread over all.
	mixed := sum.Sum64()
	mixed = (mixed ^ mixed>>30) * 0xbf58476d1ce4e5b9
	mixed = (mixed ^ mixed>>27) * 0x94d049bb133111eb
	return mixed ^ mixed>>31
}

// named returns how the members are found: a list of addresses, or dns:NAME:PORT, all addresses of a name.
func named(text string) func(context.Context) ([]string, error) {
	name, found := strings.CutPrefix(text, "dns:")
	if !found {
		list := strings.Split(text, ",")
		return func(context.Context) ([]string, error) { return slices.Clone(list), nil }
	}
	host, port, _ := net.SplitHostPort(name)
	return func(ctx context.Context) ([]string, error) {
		addresses, err := net.DefaultResolver.LookupHost(ctx, host)
		if err != nil {
			return nil, err
		}
		slices.SortFunc(addresses, cmp.Compare[string])
		for i, one := range addresses {
			addresses[i] = net.JoinHostPort(one, port)
		}
		return addresses, nil
	}
}
