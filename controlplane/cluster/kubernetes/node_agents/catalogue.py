"""``CatalogueUpkeep``: keeps the catalogue of images what the nodes' agents tell."""

import asyncio
import random
from collections.abc import Callable, Collection
from typing import Final

import structlog

from controlplane.clock import Clock
from controlplane.cluster.kubernetes.node_agents.agents import NodeAgents
from controlplane.cluster.kubernetes.preference import Catalogue, HeldImage
from controlplane.errors import Problem
from controlplane.wire import node_pb2

# Between two looks at the same node. A node whose images are the same says that in some hundred bytes; what starts and
# prefetches change meanwhile is seen without it.
LOOK_EVERY_S: Final = (50.0, 70.0)
# Nodes that are asked at the same time.
ASKED_AT_ONCE: Final = 32
# What an agent told is forgotten when it has not answered for so long.
FORGET_MS: Final = 600_000


class CatalogueUpkeep:
    """Looks at all nodes again and again.

    Args:
        agents: of the nodes.
        catalogue: what they tell.
        nodes: those that sandboxes may run on, now.
        clock: the time of day.
    """

    def __init__(
        self, agents: NodeAgents, catalogue: Catalogue, nodes: Callable[[], Collection[str]], clock: Clock
    ) -> None:
        self._agents = agents
        self._catalogue = catalogue
        self._nodes = nodes
        self._clock = clock
        self._versions: dict[str, str] = {}
        self._answered_ms: dict[str, int] = {}
        self._log = structlog.get_logger("images")

    async def run(self) -> None:
        """Never returns."""
        while True:
            await self.turn()
            await asyncio.sleep(random.uniform(*LOOK_EVERY_S))  # noqa: S311 - no secret

    async def turn(self) -> None:
        """Looks at all nodes once. Cost: a call for each, and the images of those that have others than before."""
        nodes = {*self._nodes()}
        for gone in {*self._catalogue.nodes} - nodes:
            self._forget(gone)
        turns = asyncio.Semaphore(ASKED_AT_ONCE)

        async def look(node: str) -> None:
            async with turns:
                await self._look(node)

        async with asyncio.TaskGroup() as group:
            for node in nodes:
                group.create_task(look(node), name=f"images of {node}")

    async def _look(self, node: str) -> None:
        try:
            told = await self._agents.images_since(node, self._versions.get(node, ""))
        except Problem as problem:
            self._log.debug("node does not tell its images", node=node, code=problem.code, detail=problem.detail)
            if self._clock.now_ms() - self._answered_ms.get(node, 0) > FORGET_MS:
                self._forget(node)
            return
        self._answered_ms[node] = self._clock.now_ms()
        if not told.unchanged:
            self._catalogue.replace(node, map(_held, told.images))
            self._versions[node] = told.version

    def _forget(self, node: str) -> None:
        self._catalogue.forget(node)
        self._versions.pop(node, None)
        self._answered_ms.pop(node, None)


def _held(image: node_pb2.Image) -> HeldImage:
    digests = [digest for name in image.digests if (digest := name.partition("@")[2])]
    layers = {one.digest: one.size_bytes for one in image.layers}
    used_ms = max(image.last_used_ms, image.brought_ms)
    return HeldImage(tuple(dict.fromkeys(digests)), tuple(image.names), layers, image.lazy, used_ms)
