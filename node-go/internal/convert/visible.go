package convert

import (
	"archive/tar"
	"path"
	"slices"
	"strings"
)

// How a layer says that something of the layers below is not there any more.
const (
	whiteout = ".wh."
	opaque   = ".wh..wh..opq"
)

// What a layer has of a name.
const (
	here   = 1 << iota // an entry
	itself             // what the layers below have of this name is not seen
	below              // nor is what they have in that folder
)

// contents is what a layer has, and hides of the layers below, by names.
type contents map[string]uint8

// add takes in an entry; true: there was one of that name.
func (c contents) add(name string, kind byte) (twice bool) {
	twice = c[name]&here != 0
	c[name] |= here | itself
	if kind != tar.TypeDir {
		c[name] |= below
	}
	folder, base := path.Split(name)
	if base == opaque {
		c[strings.TrimSuffix(folder, "/")] |= below
	} else if removed, is := strings.CutPrefix(base, whiteout); is {
		c[folder+removed] |= itself | below
	}
	return twice
}

// hides tells whether a file of a layer below is not seen.
func (c contents) hides(name string) bool {
	if c[name]&itself != 0 || c[""]&below != 0 {
		return true
	}
	for i, one := range name {
		if one == '/' && c[name[:i]]&below != 0 {
			return true
		}
	}
	return false
}

// present returns those of some files that a layer has.
func (c contents) present(files []string) []string {
	return slices.DeleteFunc(slices.Clone(files), func(one string) bool {
		return clean(one) == "" || c[clean(one)]&here == 0
	})
}

// hidden returns those of some files of which nothing is seen below a layer.
func (c contents) hidden(files []string) []string {
	return slices.DeleteFunc(slices.Clone(files), func(one string) bool { return !c.hides(clean(one)) })
}
