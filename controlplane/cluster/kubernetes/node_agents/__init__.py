"""The agents of the nodes: where they are, and what is asked of them (``contract/node.proto``)."""

from controlplane.cluster.kubernetes.node_agents.agents import NodeAgents
from controlplane.cluster.kubernetes.node_agents.catalogue import CatalogueUpkeep
from controlplane.cluster.kubernetes.node_agents.commits import NodeCommits
from controlplane.cluster.kubernetes.node_agents.images import NodeImages
from controlplane.cluster.kubernetes.node_agents.lazy_nodes import LazyNodes
from controlplane.cluster.kubernetes.node_agents.lazy_pulling import LazyPulling
from controlplane.cluster.kubernetes.node_agents.near_nodes import NearNodes
from controlplane.cluster.kubernetes.node_agents.parts import NodeParts, node_parts
from controlplane.cluster.kubernetes.node_agents.recorded_copies import recorded_copies

__all__ = [
    "CatalogueUpkeep",
    "LazyNodes",
    "LazyPulling",
    "NearNodes",
    "NodeAgents",
    "NodeCommits",
    "NodeImages",
    "NodeParts",
    "node_parts",
    "recorded_copies",
]
