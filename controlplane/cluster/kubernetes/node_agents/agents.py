"""``NodeAgents``: calls to the agents of nodes, over mutual TLS."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final, Self

import grpc
from grpc import aio

from controlplane.cluster.kubernetes.api_server.client import KubernetesClient
from controlplane.cluster.kubernetes.api_server.watch import Reflector
from controlplane.cluster.kubernetes.marks import TARGET
from controlplane.cluster.kubernetes.node_agents.addresses import SERVICE_LABEL, Addresses
from controlplane.cluster.protocol import OpenedFiles
from controlplane.errors import Problem
from controlplane.errors.rpc import from_rpc
from controlplane.images import Credentials
from controlplane.settings import NodeAgentSettings
from controlplane.wire import node_pb2, node_pb2_grpc

# A node with thousands of images answers in a second; one that is out of breath gets time.
CALL_TIMEOUT_S: Final = 30.0
# Of a look that comes again in a minute, so that nodes that are silent do not hold up the others.
LOOK_TIMEOUT_S: Final = 10.0
# Of a look at one sandbox, for which somebody waits; routes.proto promises an answer within as long.
USAGE_TIMEOUT_S: Final = 2.0
# A pull takes as long as the image's registry takes. One that stands still is ended by containerd itself.
PULL_TIMEOUT_S: Final = 3600.0
# Of a commit: it waits for others on its node, and its caller has a deadline of its own.
COMMIT_TIMEOUT_S: Final = 3600.0
# Of a recording: as long as the longest command, with the time to begin and to end it.
RECORD_TIMEOUT_S: Final = 3600.0
_LIST_BYTES: Final = 64 << 20


class NodeAgents:
    """One channel to each agent, opened when it is first called, closed with its address."""

    def __init__(self, addresses: Addresses, settings: NodeAgentSettings) -> None:
        self._addresses = addresses
        self._settings = settings
        self._channels: dict[str, aio.Channel] = {}

    @classmethod
    @asynccontextmanager
    async def open(cls, client: KubernetesClient, settings: NodeAgentSettings) -> AsyncIterator[Self]:
        """Follows where the agents are while the block runs.

        Raises:
            Problem: internal, if the API server does not answer or refuses.
        """
        addresses = Addresses()
        path = f"/apis/discovery.k8s.io/v1/namespaces/{settings.namespace}/endpointslices"
        follow = Reflector(client, path, {"labelSelector": f"{SERVICE_LABEL}={settings.service}"}, addresses)
        await follow.first()
        agents = cls(addresses, settings)
        async with asyncio.TaskGroup() as group:
            following = group.create_task(follow.run(), name="addresses of node agents")
            try:
                yield agents
            finally:
                following.cancel()
                await agents.close()

    def there(self, node: str) -> bool:
        """Whether the node has an agent now. Cost: no call."""
        return node in self._addresses.by_node

    @property
    def nodes(self) -> Sequence[str]:
        """Those that have an agent now. Cost: no call."""
        return [*self._addresses.by_node]

    async def describe(self, node: str) -> node_pb2.Description:
        """What a node is, and whether sandboxes start there.

        Raises:
            Problem: upstream_timeout: its agent, or its container runtime, does not answer.
        """
        stub = await self._stub(node)
        with _called(node):
            told: node_pb2.Description = await stub.Describe(node_pb2.DescribeRequest(), timeout=CALL_TIMEOUT_S)
        return told

    async def images(self, node: str) -> Sequence[node_pb2.Image]:
        """What images a node has.

        Raises:
            Problem: upstream_timeout: its agent, or its container runtime, does not answer.
        """
        stub = await self._stub(node)
        with _called(node):
            found = await stub.ListImages(node_pb2.ListImagesRequest(), timeout=CALL_TIMEOUT_S)
        return tuple(found.images)

    async def images_since(self, node: str, known: str) -> node_pb2.ImageList:
        """What images a node has, with their layers; what has changed since a version of them that is known there.

        Raises:
            Problem: upstream_timeout: its agent, or its container runtime, does not answer.
        """
        stub = await self._stub(node)
        with _called(node):
            request = node_pb2.ListImagesRequest(layers=True, known=known, changes=True)
            found: node_pb2.ImageList = await stub.ListImages(request, timeout=LOOK_TIMEOUT_S)
        return found

    async def disk_bytes(self, node: str) -> int | None:
        """The size of the file system that a node's images are on; None: the agent does not see it.

        Raises:
            Problem: upstream_timeout: its agent, or its container runtime, does not answer.
        """
        stub = await self._stub(node)
        with _called(node):
            told = await stub.Describe(node_pb2.DescribeRequest(), timeout=CALL_TIMEOUT_S)
        return int(told.images_size_bytes) if told.HasField("images_size_bytes") else None

    async def prefetch(
        self, node: str, image: str, credentials: Credentials | None, handler: str
    ) -> AsyncGenerator[node_pb2.PrefetchProgress, None]:
        """Pulls an image to a node; the last progress says that it is there.

        Args:
            node: its name.
            image: as a pod would name it.
            credentials: for its registry; None: the node's own settings hold.
            handler: the runtime handler of the sandboxes that it is for.

        Raises:
            Problem: image_not_found, image_pull_failed, upstream_timeout, ...
        """
        request = node_pb2.PrefetchRequest(image=image, handler=handler)
        if credentials is not None:
            request.credentials.username, request.credentials.password = credentials.username, credentials.password
        stub = await self._stub(node)
        call = stub.Prefetch(request, timeout=PULL_TIMEOUT_S)
        try:
            with _called(node):
                async for progress in call:
                    yield progress
        finally:
            call.cancel()

    async def remove(self, node: str, image: str, *, brought: bool = False) -> bool:
        """Removes an image from a node; False: it was not there.

        Args:
            node: its name.
            image: a name of it.
            brought: only if it came to the node for sandboxes alone.

        Raises:
            Problem: conflict: it is in use, the node's runtime keeps it, or it is somebody else's.
        """
        stub = await self._stub(node)
        with _called(node):
            answer = await stub.RemoveImage(
                node_pb2.RemoveImageRequest(image=image, brought=brought), timeout=CALL_TIMEOUT_S
            )
        return bool(answer.removed)

    async def kill(self, node: str, sandbox_id: str) -> Sequence[int]:
        """Ends the gVisor kernel of a sandbox; the ids of its processes on the node, none if nothing ran any more.

        Raises:
            Problem: sandbox_not_found: the node has no such pod; unsupported: it is no gVisor pod.
        """
        stub = await self._stub(node)
        with _called(node):
            answer = await stub.Kill(node_pb2.KillRequest(sandbox_id=sandbox_id), timeout=CALL_TIMEOUT_S)
        return tuple(answer.pids)

    async def cpu_us(self, node: str, sandbox_id: str) -> int:
        """The time on processors of a sandbox that runs there.

        Raises:
            Problem: sandbox_not_found, sandbox_lost: it does not.
        """
        stub = await self._stub(node)
        with _called(node):
            told = await stub.Usage(node_pb2.UsageRequest(sandbox_id=sandbox_id), timeout=USAGE_TIMEOUT_S)
        return int(told.cpu_us)

    async def commit(self, node: str, request: node_pb2.CommitRequest) -> AsyncGenerator[node_pb2.CommitProgress, None]:
        """Makes an image of a sandbox of a node; the last progress says which.

        Raises:
            Problem: those of ``Commits.commit``; upstream_timeout: the agent has gone, or the registry is away.
        """
        stub = await self._stub(node)
        call = stub.Commit(request, timeout=COMMIT_TIMEOUT_S)
        try:
            with _called(node):
                async for progress in call:
                    yield progress
        finally:
            call.cancel()

    async def opened(self, node: str, sandbox_id: str, during: Callable[[], Awaitable[None]]) -> OpenedFiles:
        """Which files a sandbox of a node opens until something is over, which is called once it has begun.

        A recording that is lost cancels it at once.

        Raises:
            Problem: those of ``LazyNodes.opened``.
        """
        stub = await self._stub(node)
        call = stub.Record(timeout=RECORD_TIMEOUT_S)
        try:
            with _called(node):
                await call.write(node_pb2.RecordRequest(sandbox_id=sandbox_id, container=TARGET))
                await call.read()
            told = await _told(node, call, during)
        finally:
            call.cancel()
        if not isinstance(told, node_pb2.Recording):
            raise Problem("upstream_timeout", f"the agent of node {node} ended a recording without a word", node=node)
        return OpenedFiles(tuple(told.opened.paths), told.opened.more)

    async def close(self) -> None:
        """Ends all calls."""
        await self._forget(self._channels.keys())

    async def _stub(self, node: str) -> node_pb2_grpc.NodeStub:
        by_node = self._addresses.by_node
        await self._forget(self._channels.keys() - set(by_node.values()))
        address = by_node.get(node)
        if address is None:
            detail = (
                f"the node {node} has no agent that is ready (nodeAgent.enabled runs one on every node for sandboxes)"
            )
            raise Problem("upstream_timeout", detail, node=node)
        if address not in self._channels:
            self._channels[address] = await self._connect(address)
        return node_pb2_grpc.NodeStub(self._channels[address])  # type: ignore[no-untyped-call]

    async def _connect(self, address: str) -> aio.Channel:
        # Read each time: the Secret may have been renewed.
        ca, key, certificate = await asyncio.to_thread(_read, self._settings.tls)
        options = (
            ("grpc.ssl_target_name_override", self._settings.name),
            ("grpc.enable_http_proxy", 0),
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.max_receive_message_length", _LIST_BYTES),
            ("grpc.keepalive_time_ms", 30_000),
        )
        return aio.secure_channel(address, grpc.ssl_channel_credentials(ca, key, certificate), options=options)

    async def _forget(self, addresses: Iterable[str]) -> None:
        for address in [*addresses]:
            if (channel := self._channels.pop(address, None)) is not None:
                await channel.close(None)


def _read(folder: Path) -> tuple[bytes, bytes, bytes]:
    ca, key, certificate = ((folder / name).read_bytes() for name in ("ca.crt", "tls.key", "tls.crt"))
    return ca, key, certificate


async def _told(
    node: str,
    call: aio.StreamStreamCall[node_pb2.RecordRequest, node_pb2.Recording],
    during: Callable[[], Awaitable[None]],
) -> object:
    """The last answer to a recording, which comes after something is over, or in the place of it."""
    reading, working = asyncio.ensure_future(call.read()), asyncio.ensure_future(during())
    try:
        await asyncio.wait((reading, working), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            working.result()
            with _called(node):
                await call.done_writing()
        with _called(node):
            return await reading
    finally:
        for task in (reading, working):
            task.cancel()
        await asyncio.gather(reading, working, return_exceptions=True)


@contextmanager
def _called(node: str) -> Iterator[None]:
    try:
        yield
    except asyncio.CancelledError:
        # A call ends so too where its channel is closed.
        if (task := asyncio.current_task()) is None or task.cancelling():
            raise
        detail = f"the agent of node {node} went away, or this control plane is stopping"
        raise Problem("upstream_timeout", detail, node=node) from None
    except aio.AioRpcError as error:
        problem = from_rpc(error, f"the agent of node {node}", away="upstream_timeout")
        problem.details.setdefault("node", node)
        raise problem from error
