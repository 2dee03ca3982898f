// Package node is the module of rollbox's programs that work with a node's containers and images: the agent
// (cmd/rollbox-node), and what converts, mirrors and lazily pulls images. Everything else is in internal packages.
package node
