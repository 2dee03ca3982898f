package layer

import "strings"

// places are the paths of the platform: where something is mounted, and the folders above that.
type places struct {
	mounts map[string]bool
	above  map[string]bool
}

// What a runtime mounts in every container.
var everywhere = []string{"/dev", "/proc", "/sys"}

func placesOf(mounts []string) places {
	made := places{map[string]bool{}, map[string]bool{}}
	for _, one := range append(append([]string{}, mounts...), everywhere...) {
		made.mounts[one] = true
		for at := strings.LastIndexByte(one, '/'); at > 0; at = strings.LastIndexByte(one[:at], '/') {
			made.above[one[:at]] = true
		}
	}
	return made
}

// hold reports whether a path is at a mount, or below one: the sandbox does not see what the file system has there.
func (p places) hold(path string) bool {
	for at := len(path); at > 0; at = strings.LastIndexByte(path[:at], '/') {
		if p.mounts[path[:at]] {
			return true
		}
	}
	return false
}
