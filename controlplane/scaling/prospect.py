"""``Prospect``: the nodes that a node pool may still bring for one kind of sandbox. Pure."""

from dataclasses import dataclass
from typing import Self

from controlplane.capacity import Amounts
from controlplane.capacity.amounts import times
from controlplane.scaling.node_pool import NodePool


@dataclass(frozen=True, slots=True)
class Prospect:
    """What may come of one node pool.

    Attributes:
        pool: its name.
        nodes: those that were asked for and are not there, and those that may still be asked for.
        sandboxes: how many of the kind have room on them when nothing else comes there.
        within_s: how long a node of the pool may take.
        why: why none comes at present, or none at all; empty: they may come.
        passes: whether that is a matter of time.
    """

    pool: str
    nodes: int
    sandboxes: int
    within_s: int
    why: str = ""
    passes: bool = False

    @classmethod
    def of(cls, pool: NodePool, request: Amounts, nodes: int | None, pause: str) -> Self:
        """Of a pool whose nodes take the kind.

        Args:
            pool: the pool.
            request: what one of the kind requests.
            nodes: how many may come; None: the scaler has not told.
            pause: why none is asked for at present; empty: it does not pause.
        """
        if nodes is None:
            return cls(pool.name, 0, 0, pool.arrives_within_s, "its scaler has told nothing yet", passes=True)
        why = f"has its maximum of {pool.most} nodes" if nodes <= 0 else pause
        there = max(0, nodes)
        return cls(pool.name, there, there * times(pool.size, request), pool.arrives_within_s, why, passes=there > 0)

    def words(self) -> str:
        """In words: what comes, or why it does not."""
        if not self.nodes:
            return f"node pool {self.pool}: {self.why}"
        comes = f"node pool {self.pool} may bring {self.nodes} nodes with room for {self.sandboxes}"
        return f"{comes}, within {self.within_s} s each" if not self.why else f"{comes}, but {self.why}"
