"""What operators see of the room on the nodes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from controlplane.capacity import NOTHING, Amounts, Free
from controlplane.capacity.amounts import larger, plus, times
from controlplane.cluster import Cluster
from controlplane.errors import Problem
from controlplane.lifecycle.starting.starter import Starter
from controlplane.model import Sandbox, SandboxSpec

# Any image: what a sandbox requests does not depend on it.
_DEFAULT: Final = SandboxSpec(image="default")


@dataclass(frozen=True, slots=True)
class Capacity:
    """Room on the nodes.

    Attributes:
        known: whether this cluster tells what is free.
        nodes: each with how many more sandboxes of the default size fit there.
        free: of all nodes that take starts, together.
        waiting: the starts that fit on no node, at all replicas, oldest first, with the reason and the estimated wait
            (ms; None: not known).
        pending_pods: see ``Options``.
    """

    known: bool
    nodes: Sequence[tuple[Free, int]]
    free: Amounts
    waiting: Sequence[tuple[Sandbox, Problem, int | None]]
    pending_pods: int


def capacity(cluster: Cluster, starter: Starter, pending_pods: int) -> Capacity:
    """What is free now, and what waits, at all replicas.

    Args:
        cluster: knows what is free.
        starter: knows what waits.
        pending_pods: see ``Capacity``.

    Cost: O(nodes) and O(waiting starts).
    """
    room, request = cluster.room, cluster.request(_DEFAULT)
    known = room is not None and room.known
    nodes = [(one, _fits(one, request)) for one in room.free()] if room is not None and known else []
    free = NOTHING
    for one, _ in nodes:
        # What one node has too little does not lessen what others have.
        free = free if one.node.closed else plus(free, larger(one.free, NOTHING))
    return Capacity(known, nodes, free, starter.unplaced(), pending_pods)


def _fits(one: Free, request: Amounts) -> int:
    return 0 if one.node.closed else times(one.free, request)
