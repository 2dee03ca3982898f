"""``LazyNodes``: nodes that could mount images lazily and do not now, and images that are broken."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

import structlog

from controlplane.errors import Problem
from controlplane.wire import node_pb2

# Between two looks at a node; of many nodes so many are looked at in a second.
EVERY_S: Final = 5.0
LOOKS_A_SECOND: Final = 20
# Nodes that are asked at the same time; one whose container runtime hangs answers late.
ASKED_AT_ONCE: Final = 32
# Images that are remembered as broken on one node.
MOST_BROKEN: Final = 256


class Agents(Protocol):
    """The part of ``NodeAgents`` that is used."""

    @property
    def nodes(self) -> Sequence[str]:
        """Those that have an agent."""
        ...

    async def describe(self, node: str) -> node_pb2.Description:
        """What a node is."""
        ...


class LazyNodes:
    """What the agents told last. A node whose agent does not answer is as it was: its agent may be replaced."""

    def __init__(self) -> None:
        self._troubles: dict[str, str] = {}
        self._broken: dict[str, Mapping[str, str]] = {}
        self._why: Mapping[str, str] = {}
        self._log = structlog.get_logger("lazy nodes")

    @property
    def troubled(self) -> frozenset[str]:
        """The names of nodes that mount no image now."""
        return frozenset(self._troubles)

    @property
    def trouble(self) -> str:
        """Why some nodes mount no image now, for people; empty: all do."""
        if not self._troubles:
            return ""
        node = min(self._troubles)
        return f"{len(self._troubles)} nodes mount no images now, {node} among them: {self._troubles[node]}"

    @property
    def broken(self) -> Mapping[str, str]:
        """Why sandboxes could not read files of lazily mounted images, by digest."""
        return self._why

    async def follow(self, agents: Agents) -> None:
        """Looks at all nodes, again and again, until it is cancelled."""
        while True:
            try:
                await self.look(agents)
            except Exception:
                # Raised, it would end all that shares the group with it: the whole control plane.
                self._log.exception("nodes not looked at, retrying later")
            await asyncio.sleep(max(EVERY_S, len(agents.nodes) / LOOKS_A_SECOND))

    async def look(self, agents: Agents) -> None:
        """Looks at all nodes once."""
        turns = asyncio.Semaphore(ASKED_AT_ONCE)
        nodes = agents.nodes

        async def of(node: str) -> None:
            async with turns:
                try:
                    told = await agents.describe(node)
                except Problem as problem:
                    self._log.info("node not described", node=node, code=problem.code, detail=problem.detail)
                    return
                self._take(node, told.health)

        await asyncio.gather(*(of(node) for node in nodes))
        for node in self._troubles.keys() - set(nodes):
            # Its agent has gone, and with it all that is known.
            del self._troubles[node]
        for node in self._broken.keys() - set(nodes):
            del self._broken[node]
        self._why = {digest: why for one in self._broken.values() for digest, why in one.items()}

    def _take(self, node: str, health: node_pb2.Health) -> None:
        if bool(health.lazy_trouble) != (node in self._troubles):
            say = self._log.warning if health.lazy_trouble else self._log.info
            say(
                "node mounts no images" if health.lazy_trouble else "node mounts images",
                node=node,
                why=health.lazy_trouble,
            )
        if health.lazy_trouble:
            self._troubles[node] = health.lazy_trouble
        else:
            self._troubles.pop(node, None)
        before = self._broken.pop(node, {})
        if found := {one.digest: f"on node {node}: {one.why}" for one in health.broken[:MOST_BROKEN]}:
            self._broken[node] = found
            for digest in found.keys() - before.keys():
                self._log.error("files of an image cannot be read", node=node, digest=digest, why=found[digest])
