// Package plan decides what an install does on a node, from what is there and what is wanted. It is pure.
package plan

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strconv"

	"rollbox.dev/node/internal/files"
	"rollbox.dev/node/internal/install/config"
)

// Facts is what a node is and has.
type Facts struct {
	// Kernel and Containerd are versions, as they tell them.
	Kernel, Containerd string
	// Main is the path of containerd's first settings file. Files are all that containerd reads, that one first if it is
	// there, without the one that is ours.
	Main  string
	Files []config.File
	// Unseen are imports of places that the installer does not see.
	Unseen []string
	// Present are the files of Wanted.Paths and of Record that are there.
	Present map[string]File
	// Handlers are what containerd offers at present.
	Handlers []string
	// Running are the services of Wanted that run.
	Running map[string]bool
	// Live are the pods that run in gVisor.
	Live []string
	// Supervisor is how services are kept running.
	Supervisor string
	// Record is what earlier installs have done.
	Record Record
}

// File is one file: its mode and the digest of its content.
type File = files.File

// Digest of a content, in hexadecimal.
func Digest(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// What is needed: pidfd_open (5.3) for the agent's kills, in a kernel that is still maintained; the settings of a
// snapshotter by runtime for lazy pulling, and what tests have seen.
var (
	kernelFloor     = version{5, 4, 0}
	containerdFloor = version{2, 1, 0}
)

type version [3]int

var numbers = regexp.MustCompile(`^v?(\d{1,6})\.(\d{1,6})(?:\.(\d{1,6}))?`)

func read(text string) (found version, ok bool) {
	match := numbers.FindStringSubmatch(text)
	if match == nil {
		return found, false
	}
	for i := range found {
		found[i], _ = strconv.Atoi(match[i+1])
	}
	return found, true
}

func (v version) below(floor version) bool {
	return cmp.Or(cmp.Compare(v[0], floor[0]), cmp.Compare(v[1], floor[1]), cmp.Compare(v[2], floor[2])) < 0
}

func (v version) String() string {
	return strconv.Itoa(v[0]) + "." + strconv.Itoa(v[1]) + "." + strconv.Itoa(v[2])
}
