"""``ScalingOptions``: what the scaler may do."""

from collections.abc import Sequence
from dataclasses import dataclass

from controlplane.scaling.node_pool import NodePool


@dataclass(frozen=True, slots=True)
class ScalingOptions:
    """What the scaler may do.

    Attributes:
        pools: the declared node pools.
        down_after_ms: a node goes only if nothing needed it for so long.
        headroom: sandboxes of the default size for which there is always to be room.
        dry_run: it decides and tells, and does nothing.
    """

    pools: Sequence[NodePool]
    down_after_ms: int
    headroom: int = 0
    dry_run: bool = False
