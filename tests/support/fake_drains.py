"""The nodes of a fake cluster, and which of them are emptied."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence

from controlplane.cluster import Drain, NodeState
from controlplane.errors import Problem


class FakeDrains:
    """Nodes as a test sets them; what an operator wants is done at once."""

    def __init__(self, on_node: Callable[[str], Sequence[str]], *nodes: str) -> None:
        self._on_node = on_node
        self.known = dict.fromkeys(nodes or ("n1",))
        self.drains: dict[str, Drain] = {}
        self.quiet: set[str] = set()
        self._followers: list[asyncio.Queue[str]] = []

    def mark(self, node: str, drain: Drain | None) -> None:
        """Puts a mark on a node, or takes it off."""
        if drain is None:
            self.drains.pop(node, None)
        else:
            self.drains[node] = drain
        for follower in self._followers:
            follower.put_nowait(node)

    def vanish(self, node: str) -> None:
        """The node is deleted."""
        del self.known[node]
        self.mark(node, None)

    def nodes(self) -> Sequence[NodeState]:
        return [NodeState(name, ready=True, drain=self.drains.get(name), max_pods=256) for name in sorted(self.known)]

    def draining(self) -> Mapping[str, Drain]:
        return self.drains

    def silent(self) -> frozenset[str]:
        return frozenset(self.quiet)

    def sandboxes(self, node: str) -> Sequence[str]:
        return self._on_node(node)

    def knows(self, node: str) -> bool:
        return node in self.known

    async def changes(self) -> AsyncIterator[str]:
        follower: asyncio.Queue[str] = asyncio.Queue()
        self._followers.append(follower)
        for node in [*self.drains]:
            yield node
        while True:
            yield await follower.get()

    async def drain(self, node: str, until_ms: int, by: str) -> None:
        if node not in self.known:
            raise Problem("not_found", f"there is no node {node}", node=node)
        self.mark(node, Drain(until_ms, 1, by, "is drained by an operator"))

    async def undrain(self, node: str) -> None:
        self.mark(node, None)
