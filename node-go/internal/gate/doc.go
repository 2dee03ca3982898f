// Package gate lets the agents of nodes put images of sandboxes into a registry whose account they must not have.
//
// An agent shows a token of the control plane that names the repositories of one commit (node_agents/tokens.py), as it
// shows it to the chart's own registry. What the token allows goes on to the registry with its account; anything else is
// refused here. An agent never learns where an upload is at the registry: it gets a number for it.
package gate
