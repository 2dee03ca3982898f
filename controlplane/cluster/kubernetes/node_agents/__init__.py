"""The agents of the nodes: where they are, and what is asked of them (``contract/node.proto``)."""

from controlplane.cluster.kubernetes.node_agents.agents import NodeAgents
from controlplane.cluster.kubernetes.node_agents.images import NodeImages

__all__ = ["NodeAgents", "NodeImages"]
