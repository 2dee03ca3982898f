"""The client of the registry's collector (``contract/collector.proto``), over mutual TLS."""

from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, Self, TypeVar

from grpc import aio

from controlplane.errors import Problem
from controlplane.errors.rpc import from_rpc
from controlplane.images import Collected, RegistryImage, RegistryRoom
from controlplane.registry.channel import channel_to
from controlplane.wire import collector_pb2, collector_pb2_grpc

# A start waits for the first ones.
ASKED_WITHIN_S: Final = 5.0
LISTED_WITHIN_S: Final = 120.0
COLLECTED_WITHIN_S: Final = 540.0

T = TypeVar("T")


class CollectorClient:
    """Calls the collector of one registry; see ``images.stored.Collector``."""

    def __init__(self, channel: aio.Channel) -> None:
        self._stub = collector_pb2_grpc.CollectorStub(channel)  # type: ignore[no-untyped-call]

    @classmethod
    @asynccontextmanager
    async def open(cls, address: str, tls_folder: Path, name: str) -> AsyncIterator[Self]:
        """A client while the block runs; it connects when needed.

        Args:
            address: host and port.
            tls_folder: has ``ca.crt``, ``tls.crt`` and ``tls.key``.
            name: in the collector's certificate, whatever address it is reached at.
        """
        async with channel_to(address, tls_folder, name) as channel:
            yield cls(channel)

    async def room(self) -> RegistryRoom:
        """See ``Collector.room``."""
        reply = await _asked(self._stub.Room(collector_pb2.RoomRequest(), timeout=ASKED_WITHIN_S))
        return RegistryRoom(reply.disk_bytes, reply.used_bytes, reply.full)

    async def stored(self) -> list[RegistryImage]:
        """See ``Collector.stored``."""
        call = self._stub.ListStored(collector_pb2.ListStoredRequest(), timeout=LISTED_WITHIN_S)
        parts: list[tuple[str, int]] = []
        images: list[RegistryImage] = []
        try:
            async for reply in call:
                parts += ((_digest(one.sha256), one.size_bytes) for one in reply.parts)
                images += (
                    RegistryImage(
                        one.repository,
                        _digest(one.sha256),
                        dict(parts[at] for at in one.parts),
                        one.used_ms,
                        [_digest(source) for source in one.sources],
                        recorded=one.recorded,
                        owners=tuple(one.recorded_for),
                        offered=one.offered,
                    )
                    for one in reply.images
                )
        except aio.AioRpcError as error:
            raise _problem(error) from error
        finally:
            call.cancel()
        return images

    async def use(self, repository: str, digest: str) -> bool:
        """See ``Collector.use``."""
        request = collector_pb2.UseCopyRequest(repository=repository, digest=digest)
        return bool((await _asked(self._stub.UseCopy(request, timeout=ASKED_WITHIN_S))).there)

    async def remove(self, repository: str, digest: str, unused_since_ms: int) -> bool:
        """See ``Collector.remove``."""
        request = collector_pb2.RemoveCopyRequest(repository=repository, digest=digest, unused_since_ms=unused_since_ms)
        return bool((await _asked(self._stub.RemoveCopy(request, timeout=LISTED_WITHIN_S))).there)

    async def recorded(self, owner: str) -> tuple[int, int]:
        """See ``Collector.recorded``."""
        reply = await _asked(self._stub.Recorded(collector_pb2.RecordedRequest(owner=owner), timeout=LISTED_WITHIN_S))
        return reply.copies, reply.bytes

    async def collect(self, *, urgent: bool = False) -> Collected:
        """See ``Collector.collect``."""
        request = collector_pb2.CollectRequest(urgent=urgent)
        done = await _asked(self._stub.Collect(request, timeout=COLLECTED_WITHIN_S))
        return Collected(done.freed_bytes, done.freed_blobs, done.ended_uploads, done.kept_blobs, done.blobs)


async def _asked(call: Awaitable[T]) -> T:
    try:
        return await call
    except aio.AioRpcError as error:
        raise _problem(error) from error


def _problem(error: aio.AioRpcError) -> Problem:
    return from_rpc(error, "the registry's collector", away="upstream_timeout")


def _digest(sha256: bytes) -> str:
    return f"sha256:{sha256.hex()}"
