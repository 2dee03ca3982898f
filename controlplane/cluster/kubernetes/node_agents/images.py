"""``NodeImages``: the images of all nodes for sandboxes, and pulls to each of them."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import Final, Protocol

import structlog

from controlplane.cluster.kubernetes.node_agents.agents import NodeAgents
from controlplane.cluster.protocol import NO_LAYERS, NodeImage, NodeStore, PrefetchProgress
from controlplane.errors import Problem
from controlplane.images import Credentials, Keyring, Reference, parse
from controlplane.wire import node_pb2

# Nodes that are asked at the same time.
ASKED_AT_ONCE: Final = 32
# Nodes to which one image is pulled at the same time: what a registry is asked for by one call.
PULLING_AT_ONCE: Final = 256


class Near(Protocol):
    """The part of ``NearNodes`` that is used."""

    def chosen(self, image: str, count: int | None, layers: Mapping[str, int]) -> Sequence[str]:
        """The nodes that an image is to be pulled to."""
        ...

    def noted(
        self, image: str, pulls: AsyncGenerator[PrefetchProgress, None]
    ) -> AsyncGenerator[PrefetchProgress, None]:
        """The progress of a prefetch, of which it is noted where the image is."""
        ...


class NodeImages:
    """What the nodes have; see ``cluster.protocol.NodeImages`` and ``NodeStores``.

    Args:
        agents: of the nodes.
        keyring: the credentials with which nodes pull: those of the sandboxes' pull secrets, as for their pods.
        nodes: that sandboxes may run on and that are Ready, now.
        near: chooses nodes for images, and is told what they have.
        handler: by which runtime's handler nodes are to have an image, by its name.
        needed: the name of an image that is never told as one to remove: each sandbox needs it.
    """

    def __init__(
        self,
        agents: NodeAgents,
        keyring: Callable[[], Awaitable[Keyring]],
        nodes: Callable[[], Sequence[str]],
        near: Near,
        *,
        handler: Callable[[str], str],
        needed: str,
    ) -> None:
        self._agents = agents
        self._keyring = keyring
        self._nodes = nodes
        self._near = near
        self._handler = handler
        self._needed = parse(needed)
        self._log = structlog.get_logger("images")

    async def all(self) -> Sequence[NodeImage]:
        """See ``NodeImages.all``, without what the nodes' runtimes need; a node that does not answer is logged."""
        turns = asyncio.Semaphore(ASKED_AT_ONCE)

        async def of(node: str) -> Sequence[NodeImage] | Problem:
            async with turns:
                try:
                    return [_image(node, one) for one in await self._agents.images(node) if not one.pinned]
                except Problem as problem:
                    self._log.warning(
                        "node does not tell its images", node=node, code=problem.code, detail=problem.detail
                    )
                    return problem

        answers = await asyncio.gather(*(of(node) for node in self._nodes()))
        problems = [one for one in answers if isinstance(one, Problem)]
        if problems and len(problems) == len(answers):
            raise problems[0]
        return [image for one in answers if not isinstance(one, Problem) for image in one]

    async def stores(self) -> Sequence[NodeStore]:
        """See ``NodeStores.stores``; a node that does not answer is logged."""
        turns = asyncio.Semaphore(ASKED_AT_ONCE)

        async def of(node: str) -> NodeStore | None:
            async with turns:
                try:
                    found = [_image(node, one) for one in await self._agents.images(node) if not one.pinned]
                    disk_bytes = await self._agents.disk_bytes(node)
                except Problem as problem:
                    self._log.warning("node not looked at", node=node, code=problem.code, detail=problem.detail)
                    return None
            return NodeStore(node, [one for one in found if not _has(one, self._needed)], disk_bytes)

        return [one for one in await asyncio.gather(*(of(node) for node in self._nodes())) if one is not None]

    async def remove(self, image: NodeImage) -> bool:
        """See ``NodeStores.remove``."""
        return await self._agents.remove(image.node, image.names[0], brought=True)

    def prefetch(
        self, name: str, nodes: int | None = None, layers: Mapping[str, int] = NO_LAYERS
    ) -> AsyncGenerator[PrefetchProgress, None]:
        """See ``NodeImages.prefetch``."""
        return self._near.noted(name, self._pulled(name, self._near.chosen(name, nodes, layers), self._handler(name)))

    async def _pulled(self, name: str, nodes: Sequence[str], handler: str) -> AsyncGenerator[PrefetchProgress, None]:
        try:
            credentials = (await self._keyring()).find(parse(name))
        except ValueError as error:
            raise Problem("image_not_found", f"{name!r} is not the name of an image: {error}", image=name) from error
        board = _Board()
        pulls = asyncio.create_task(self._pull(name, nodes, handler, credentials, board), name=f"prefetch {name}")
        pulls.add_done_callback(lambda _: board.rung.set())
        try:
            while not pulls.done() or board.news:
                await board.rung.wait()
                board.rung.clear()
                for one in board.take():
                    yield one
            await pulls
        finally:
            pulls.cancel()
            with suppress(asyncio.CancelledError):
                await pulls

    async def _pull(
        self, name: str, nodes: Sequence[str], handler: str, credentials: Credentials | None, board: "_Board"
    ) -> None:
        turns = asyncio.Semaphore(PULLING_AT_ONCE)

        async def to(node: str) -> None:
            async with turns:
                try:
                    async with aclosing(self._agents.prefetch(node, name, credentials, handler)) as told:
                        async for one in told:
                            board.put(_progress(node, one))
                except Problem as problem:
                    board.put(PrefetchProgress(node, "failed", failure=problem))

        async with asyncio.TaskGroup() as group:
            for node in nodes:
                group.create_task(to(node))


class _Board:
    """The last progress of each node that was not read yet: a reader that is slow misses steps, and holds up nobody."""

    def __init__(self) -> None:
        self.rung = asyncio.Event()
        self.news: dict[str, PrefetchProgress] = {}

    def put(self, one: PrefetchProgress) -> None:
        self.news[one.node] = one
        self.rung.set()

    def take(self) -> Sequence[PrefetchProgress]:
        news, self.news = self.news, {}
        return tuple(news.values())


def _image(node: str, one: node_pb2.Image) -> NodeImage:
    digest = next((name.partition("@")[2] for name in one.digests), "")
    return NodeImage(
        node=node,
        # What was pulled by its digest has no other name.
        names=tuple(one.names) or tuple(one.digests),
        digest=digest,
        size_bytes=one.size_bytes,
        lazy=one.lazy if one.HasField("lazy") else None,
        last_used_ms=one.last_used_ms if one.HasField("last_used_ms") else None,
        brought_ms=one.brought_ms if one.HasField("brought_ms") else None,
        containers=one.containers,
    )


def _has(image: NodeImage, needed: Reference) -> bool:
    known = [parse(name) for name in image.names]
    if needed.digest:
        return image.digest == needed.digest
    return any((one.name, one.tag) == (needed.name, needed.tag) for one in known)


def _progress(node: str, one: node_pb2.PrefetchProgress) -> PrefetchProgress:
    total_bytes = one.total_bytes if one.HasField("total_bytes") else None
    here = one.state == node_pb2.PrefetchProgress.HERE
    return PrefetchProgress(node, "here" if here else "pulling", one.done_bytes, total_bytes)
