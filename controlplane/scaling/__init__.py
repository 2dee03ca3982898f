"""How many nodes each node pool should have, and what is done about it. Pure: no clock, no client, no event loop."""

from controlplane.scaling.kinds import Kind
from controlplane.scaling.node_pool import NodePool, node_pools
from controlplane.scaling.options import ScalingOptions
from controlplane.scaling.prospect import Prospect

__all__ = ["Kind", "NodePool", "Prospect", "ScalingOptions", "node_pools"]
