package collector

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
)

// Of the tags of recorded copies (internal/mirror): `copy-SOURCE-FORM-ARCHITECTURES-OWNER-LIST` of the copy itself, and
// `boot-SOURCE-FORM-ARCHITECTURES-OWNER` of the one that an owner's starts get. No architecture has so many characters.
const (
	ownerDigits   = 16
	listDigits    = 12
	verdictDigits = 24
)

// recordedFor tells what stands for the owner of the recorded copy that has this tag; empty: it is no such tag.
func recordedFor(tag string) string {
	parts := strings.Split(tag, "-")
	if len(parts) < 3 || parts[0] != "copy" {
		return ""
	}
	last, before := parts[len(parts)-1], parts[len(parts)-2]
	if len(last) == listDigits && len(before) == ownerDigits {
		return before
	}
	return ""
}

// offers tells whether a tag says what the starts of one owner get.
func offers(tag string) bool {
	return strings.HasPrefix(tag, "boot-") && len(tag)-strings.LastIndex(tag, "-")-1 == verdictDigits
}

// lists adds what tags that lead to an image say of it as a recorded copy.
func (s *Stored) lists(tags []string) {
	for _, tag := range tags {
		owner := recordedFor(tag)
		switch {
		case owner != "":
			s.Recorded = true
			s.Owners = append(s.Owners, owner)
		case offers(tag):
			s.Offered = true
		case strings.HasPrefix(tag, "copy-"):
			// A list that changed nothing: the copy of all owners has the same content.
			*s = Stored{Repository: s.Repository, Digest: s.Digest, Used: s.Used, Parts: s.Parts, Sources: s.Sources}
			return
		}
	}
	slices.Sort(s.Owners)
	s.Owners = slices.Compact(s.Owners)
}

// RecordedBy tells how many recorded copies an owner has, and the bytes of all that these have. It waits for no collection:
// what is put aside meanwhile is no copy's. One that has the content of the copy of all owners does not count: its list
// has changed nothing, and it is not removed by itself. Cost: a list of the tags of each converted image.
func (c *Collector) RecordedBy(ctx context.Context, owner string) (copies int, total int64, err error) {
	seen := &scan{layout: c.layout, known: map[hash]named{}}
	all, manifests := newReached(), map[hash]bool{}
	err = seen.walk(ctx, convertedFolder, func(name string) error {
		tags, err := entriesOf(c.layout.tags(name))
		if err != nil {
			return err
		}
		common := map[hash]bool{}
		for _, one := range tags {
			if recordedFor(one.Name()) != "" || !strings.HasPrefix(one.Name(), "copy-") {
				continue
			}
			stands, err := tagOf(c.layout.tags(name), one.Name())
			if err != nil {
				return err
			}
			for _, h := range stands {
				common[h] = true
			}
		}
		for _, one := range tags {
			if recordedFor(one.Name()) != owner {
				continue
			}
			stands, err := tagOf(c.layout.tags(name), one.Name())
			if err != nil {
				return err
			}
			for _, h := range stands {
				if common[h] {
					continue
				}
				manifests[h] = true
				if err := seen.reach(h, all); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		return 0, 0, err
	}
	for h := range all.blobs {
		about, err := os.Lstat(c.layout.blob(h))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return 0, 0, err
		}
		total += about.Size()
	}
	return len(manifests), total, nil
}
