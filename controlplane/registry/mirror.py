"""The client of the mirror (``contract/mirror.proto``), over mutual TLS."""

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, Literal, Self

import grpc
from grpc import aio

from controlplane.errors import Problem
from controlplane.errors.rpc import from_rpc
from controlplane.images import Converted, Copied, Copying, Credentials, Found, Recorded, Reference
from controlplane.registry.channel import channel_to
from controlplane.wire import mirror_pb2, mirror_pb2_grpc

FIND_WITHIN_S: Final = 10.0
_PHASES: Final[dict[int, Literal["waiting", "copying", "converting", "paused"]]] = {
    mirror_pb2.CopyProgress.COPYING: "copying",
    mirror_pb2.CopyProgress.CONVERTING: "converting",
    mirror_pb2.CopyProgress.PAUSED: "paused",
}
_BOOTED: Final[dict[int, bool]] = {mirror_pb2.FindReply.BOOTED: True, mirror_pb2.FindReply.FAILED: False}
# What the transport answers for a mirror that is not there, or stops.
_AWAY: Final = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, grpc.StatusCode.DEADLINE_EXCEEDED})


class MirrorAwayError(Problem):
    """The mirror does not answer: the same call may work a moment later."""

    def __init__(self, why: str) -> None:
        super().__init__("image_pull_failed", f"the mirror does not answer: {why}", side="mirror")


class MirrorClient:
    """Calls one mirror; see ``images.options.Mirror``."""

    def __init__(self, channel: aio.Channel) -> None:
        self._stub = mirror_pb2_grpc.MirrorStub(channel)  # type: ignore[no-untyped-call]

    @classmethod
    @asynccontextmanager
    async def open(cls, address: str, tls_folder: Path, name: str) -> AsyncIterator[Self]:
        """A client while the block runs; it connects when needed.

        Args:
            address: host and port.
            tls_folder: has ``ca.crt``, ``tls.crt`` and ``tls.key``.
            name: in the mirror's certificate, whatever address it is reached at.
        """
        async with channel_to(address, tls_folder, name) as channel:
            yield cls(channel)

    async def copy(
        self,
        source: Reference,
        credentials: Credentials | None,
        repository: str,
        architectures: Collection[str],
        *,
        through: str = "",
        no_room: bool = False,
        recorded: Recorded | None = None,
    ) -> AsyncIterator[Copying | Copied]:
        """See ``Mirror.copy``."""
        upstream = None
        if credentials is not None:
            upstream = mirror_pb2.UpstreamCredentials(username=credentials.username, password=credentials.password)
        request = mirror_pb2.CopyRequest(
            source=f"{source.name}@{source.digest}",
            upstream=upstream,
            target=repository,
            form=mirror_pb2.ESTARGZ if through else mirror_pb2.PLAIN,
            architectures=sorted(architectures),
            tag=source.tag,
            through=through,
            no_room=no_room,
            first=() if recorded is None else recorded.first,
            whose="" if recorded is None else recorded.whose,
        )
        call = self._stub.Copy(request)
        try:
            async for update in call:
                yield _told(update)
        except aio.AioRpcError as error:
            raise _problem(error) from error
        finally:
            call.cancel()

    async def find(self, repository: str, reference: str) -> Found | None:
        """See ``Mirror.find``."""
        reply = await self._found(mirror_pb2.FindRequest(repository=repository, reference=reference))
        return None if reply is None else Found(reply.digest, reply.named)

    async def converted(
        self, repository: str, source: str, architectures: Collection[str], whose: str = ""
    ) -> Converted | None:
        """See ``Mirror.converted``."""
        request = mirror_pb2.FindRequest(
            repository=repository,
            reference=source,
            form=mirror_pb2.ESTARGZ,
            architectures=sorted(architectures),
            whose=whose,
        )
        reply = await self._found(request)
        return None if reply is None else Converted(reply.digest, _BOOTED.get(reply.boot), reply.why)

    async def judge(
        self, repository: str, source: str, architectures: Collection[str], tried: Converted, whose: str = ""
    ) -> None:
        """See ``Mirror.judge``."""
        request = mirror_pb2.JudgeRequest(
            repository=repository,
            source=source,
            architectures=sorted(architectures),
            digest=tried.digest,
            boots=bool(tried.booted),
            why=tried.why,
            whose=whose,
        )
        try:
            await self._stub.Judge(request, timeout=FIND_WITHIN_S)
        except aio.AioRpcError as error:
            raise _problem(error) from error

    async def _found(self, request: mirror_pb2.FindRequest) -> mirror_pb2.FindReply | None:
        try:
            reply: mirror_pb2.FindReply = await self._stub.Find(request, timeout=FIND_WITHIN_S)
        except aio.AioRpcError as error:
            problem = _problem(error)
            if problem.code == "image_not_found":
                return None
            raise problem from error
        return reply


def _told(update: mirror_pb2.CopyUpdate) -> Copying | Copied:
    if update.WhichOneof("body") == "copied":
        return Copied(update.copied.digest, update.copied.there, tuple(update.copied.architectures))
    now = update.progress
    phase = _PHASES.get(now.phase, "waiting")
    return Copying(phase, now.done_layers, now.total_layers, now.done_bytes, now.total_bytes)


def _problem(error: aio.AioRpcError) -> Problem:
    problem = from_rpc(error, "the mirror")
    if "peer" in problem.details and error.code() in _AWAY:
        # No problem of the contract was in it.
        return MirrorAwayError(str(error.details()))
    return problem
