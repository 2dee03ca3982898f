// Package mirror copies images from upstream registries into the installation's private registry: each once, by digest,
// streamed and verified, a bounded number at a time.
//
// An upstream registry is whatever a user's image names, so it is the attacker: it is asked at public addresses only
// (guard.go), what it sends is counted and verified (part.go), and what it claims about an image is checked before a
// byte of a layer is read (manifest.go).
package mirror
