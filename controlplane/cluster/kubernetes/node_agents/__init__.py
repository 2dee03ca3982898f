"""The agents of the nodes: where they are, and what is asked of them (``contract/node.proto``)."""

from controlplane.cluster.kubernetes.node_agents.agents import NodeAgents
from controlplane.cluster.kubernetes.node_agents.catalogue import CatalogueUpkeep
from controlplane.cluster.kubernetes.node_agents.images import NodeImages
from controlplane.cluster.kubernetes.node_agents.parts import NodeParts, node_parts
from controlplane.cluster.kubernetes.node_agents.recorded_copies import recorded_copies

__all__ = [
    "CatalogueUpkeep",
    "NodeAgents",
    "NodeImages",
    "NodeParts",
    "node_parts",
    "recorded_copies",
]
