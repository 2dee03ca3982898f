"""``CatalogueUpkeep``: keeps the catalogue of images what the nodes' agents tell."""

import asyncio
import random
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

import structlog

from controlplane.clock import Clock
from controlplane.cluster.kubernetes.node_agents.agents import NodeAgents
from controlplane.cluster.kubernetes.nodes.preference import Catalogue, HeldImage, ReportedImages
from controlplane.errors import Problem
from controlplane.wire import node_pb2

# Between two looks at the same node. An image that has changed is some hundred bytes; what starts and prefetches change
# meanwhile is seen without it.
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
        self._told = ReportedImages()
        self._answered_ms: dict[str, int] = {}
        self._log = structlog.get_logger("images")

    async def run(self) -> None:
        """Never returns."""
        while True:
            await self.turn()
            await asyncio.sleep(random.uniform(*LOOK_EVERY_S))  # noqa: S311 - no secret

    async def turn(self) -> None:
        """Looks at all nodes once. Cost: a call for each, and the images that they did not have before."""
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
            await self._take(node)
        except Problem as problem:
            self._log.debug("node does not tell its images", node=node, code=problem.code, detail=problem.detail)
            if self._clock.now_ms() - self._answered_ms.get(node, 0) > FORGET_MS:
                self._forget(node)

    async def _take(self, node: str) -> None:
        answer = await self._agents.images_since(node, self._told.version(node))
        if answer.changes and not self._told.change(node, answer.version, _marked(answer.images), answer.gone):
            self._log.warning("what has changed on a node does not fit what is known of its images", node=node)
            answer = await self._agents.images_since(node, "")
        if not answer.changes and not answer.unchanged:
            by_use = sorted(answer.images, key=lambda one: max(one.last_used_ms, one.brought_ms))
            self._told.replace(node, answer.version, _marked(by_use))
        self._answered_ms[node] = self._clock.now_ms()
        if not answer.unchanged:
            self._catalogue.replace(node, self._told.images(node))

    def _forget(self, node: str) -> None:
        self._catalogue.forget(node)
        self._told.forget(node)
        self._answered_ms.pop(node, None)


def _marked(images: Iterable[node_pb2.Image]) -> Mapping[int, HeldImage]:
    return {one.mark: _held(one) for one in images}


def _held(image: node_pb2.Image) -> HeldImage:
    digests = [digest for name in image.digests if (digest := name.partition("@")[2])]
    layers = {one.digest: one.size_bytes for one in image.layers}
    return HeldImage(tuple(dict.fromkeys(digests)), tuple(image.names), layers, image.lazy)
