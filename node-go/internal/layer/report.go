package layer

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// Told one by one; further ones are counted.
	mostSkipped  = 100
	maxPathChars = 160
)

// Report is what is not in a layer.
type Report struct {
	Skipped []string // each with the reason
	More    uint64   // how many further ones
}

func (r *Report) skip(path, why string) {
	if len(r.Skipped) < mostSkipped {
		r.Skipped = append(r.Skipped, Shown(path)+": "+why)
	} else {
		r.More++
	}
}

// Shown is a name as it can be told: what cannot be printed is escaped, and the middle of a long one is left out.
func Shown(name string) string {
	var told strings.Builder
	for at := 0; at < len(name); {
		one, length := utf8.DecodeRuneInString(name[at:])
		switch {
		case one == utf8.RuneError && length == 1:
			fmt.Fprintf(&told, `\x%02x`, name[at])
		case !unicode.IsPrint(one):
			quoted := fmt.Sprintf("%+q", one)
			told.WriteString(quoted[1 : len(quoted)-1])
		default:
			told.WriteRune(one)
		}
		at += length
	}
	chars := []rune(told.String())
	if half := maxPathChars / 2; len(chars) > maxPathChars {
		return string(chars[:half]) + "..." + string(chars[len(chars)-half:])
	}
	return string(chars)
}

// sink refuses to become longer than it may be.
type sink struct {
	to        io.Writer
	left, max int64
	path      string // of what is being written
}

var errFull = errors.New("full")

func (s *sink) Write(data []byte) (int, error) {
	if int64(len(data)) > s.left {
		return 0, errFull
	}
	n, err := s.to.Write(data)
	s.left -= int64(n)
	return n, err
}

// judge returns what an error means that writing has ended with.
func (s *sink) judge(err error) error {
	if errors.Is(err, errFull) {
		return &TooLargeError{s.path, s.max}
	}
	return err
}
