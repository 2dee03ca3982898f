package layer

// Bound is what a layer may have, so that what is known of its files fits into memory.
type Bound struct {
	// Entries is how many files.
	Entries int
}

const (
	// What one file takes: in the listing and in the layer below it, or in two layers that become one. A third of it is for
	// names; memory_test.go measures the rest.
	bytesPerFile = 640
	// Of all names, links and attributes of a layer: so many for each file that it may have.
	nameBytesPerFile = 144
	// Of the listing: a header, where its content is, and records of long names and attributes.
	listingBytesPerFile = 3584
)

// Within returns the bound of one layer where each of some commits at once gets its share of a process's memory (bytes), of
// which a quarter is for all else.
func Within(memory int64, commits int) Bound {
	return Bound{int(memory / 4 * 3 / int64(commits) / bytesPerFile)}
}

func (b Bound) names() int     { return b.Entries * nameBytesPerFile }
func (b Bound) listing() int64 { return int64(b.Entries) * listingBytesPerFile }
