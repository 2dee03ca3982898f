// Package peers lets nodes give one another the layers of images that they have, so that a registry sends each to few of
// them.
//
// One process of it runs on each node, in two roles. For the node's containerd it is a host to ask before the registry
// (certs.d): it finds a node that has a layer and passes on what that one sends, or answers that it has none, so that
// containerd asks the registry. For the other nodes it sends what this node's containerd has, and keeps for some layers
// who has them: its part as their tracker. Which node that is follows from the layer's digest.
//
// A layer that many nodes want at once is not fetched by all of them: the tracker lets a few ask the registry, and gives
// the others a node as soon as one has it. Manifests are never given: for each image the registry is asked, and judges
// the credentials of the pull.
package peers
