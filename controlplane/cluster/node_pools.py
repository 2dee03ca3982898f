"""``NodePools``: the protocol of what adds and removes nodes, for the scaler. Every failure is a ``Problem``."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from controlplane.scaling import NodePool
from controlplane.scaling.seen import Group, Machine


class NodePools(Protocol):
    """All node pools of an installation, whatever provides their nodes. No call takes longer than a bounded time."""

    def ready(self, node: str) -> bool:
        """Whether a node is Ready. Cost: no call."""
        ...

    def leaving(self, labels: Mapping[str, str]) -> bool:
        """Whether a node with these labels was cordoned by this installation's scaler. Cost: no call."""
        ...

    async def look(self, pool: NodePool) -> Group:
        """A pool as its provider tells it, checked: what contradicts itself is no answer.

        Raises:
            Problem: upstream_timeout, permission_denied, not_found, internal, ...
        """
        ...

    async def ask(self, pool: NodePool, group: Group, target: int, held: int) -> None:
        """Asks the provider for so many nodes.

        Args:
            pool: which one.
            group: as it was when this was decided.
            target: how many in all.
            held: how many of them hold a sandbox.

        Raises:
            Problem: conflict: the group has changed meanwhile; capacity_unavailable: there is no stock; as ``look``.
        """
        ...

    async def remove(self, pool: NodePool, group: Group, machines: Sequence[Machine]) -> None:
        """Has machines removed of which the nodes hold no sandbox, and the target lowered by as many.

        Asks the API server once more what is on their nodes: one that has a sandbox, of any installation, stays, with
        all others of this call. So do all if one names no node, and a node with the pool's labels is no machine's.

        Raises:
            Problem: conflict: the group has changed meanwhile, or a node has a sandbox; as ``look``.
        """
        ...

    async def cordon(self, node: str) -> None:
        """Has no start come to a node, and marks it as leaving; success if it is so already.

        Raises:
            Problem: the API server's.
        """
        ...

    async def uncordon(self, node: str) -> None:
        """Undoes ``cordon``; success if the node is gone. One that an operator drains meanwhile stays cordoned.

        Raises:
            Problem: conflict: the node changes at the same time; the API server's.
        """
        ...
