"""Parts of an older version beside this control plane, as while an upgrade is under way: what a caller hears."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from grpc import aio

from controlplane.errors import Problem
from controlplane.images import Copied, Recorded, parse
from controlplane.registry import CollectorClient, MirrorClient
from controlplane.wire import collector_pb2_grpc, mirror_pb2, mirror_pb2_grpc

DIGEST = f"sha256:{'1' * 64}"
SOURCE = parse(f"python@{DIGEST}")
RECORDED = Recorded.of("alice", ["/b", "/a"])


class Mirror(mirror_pb2_grpc.MirrorServicer):
    """Says what it is told to say of a list."""

    def __init__(self, first_sha256: str) -> None:
        self.first_sha256 = first_sha256

    async def Copy(  # noqa: N802 - the name in the contract
        self, request: mirror_pb2.CopyRequest, context: aio.ServicerContext[object, object]
    ) -> AsyncIterator[mirror_pb2.CopyUpdate]:
        yield mirror_pb2.CopyUpdate(progress=mirror_pb2.CopyProgress(phase=mirror_pb2.CopyProgress.CONVERTING))
        yield mirror_pb2.CopyUpdate(copied=mirror_pb2.Copied(digest=DIGEST, first_sha256=self.first_sha256))


@asynccontextmanager
async def served(folder: Path, mirror: Mirror | None = None) -> AsyncIterator[aio.Channel]:
    """A channel to a mirror, and to a collector that knows none of its calls."""
    server = aio.server()
    if mirror is not None:
        mirror_pb2_grpc.add_MirrorServicer_to_server(mirror, server)  # type: ignore[no-untyped-call]
    collector_pb2_grpc.add_CollectorServicer_to_server(  # type: ignore[no-untyped-call]
        collector_pb2_grpc.CollectorServicer(), server
    )
    server.add_insecure_port(f"unix:{folder}/a.sock")
    await server.start()
    try:
        async with aio.insecure_channel(f"unix:{folder}/a.sock") as channel:
            yield channel
    finally:
        await server.stop(None)


async def copied(channel: aio.Channel, recorded: Recorded | None) -> Copied:
    told = [
        one
        async for one in MirrorClient(channel).copy(
            SOURCE, None, "estargz/a", ["amd64"], through="mirror/a", recorded=recorded
        )
    ]
    assert isinstance(told[-1], Copied)
    return told[-1]


async def test_a_mirror_that_ignores_a_list_is_noticed(tmp_path: Path) -> None:
    async with served(tmp_path, Mirror("")) as channel:
        assert (await copied(channel, None)).digest == DIGEST
        with pytest.raises(Problem, match="put no files first: it is of an older version") as caught:
            await copied(channel, RECORDED)
        assert caught.value.code == "unsupported"


async def test_a_mirror_that_says_which_list_it_has_is_believed_for_that_one(tmp_path: Path) -> None:
    async with served(tmp_path, Mirror(RECORDED.first_sha256)) as channel:
        assert (await copied(channel, RECORDED)).digest == DIGEST
        with pytest.raises(Problem, match="put no files first"):
            await copied(channel, Recorded.of("alice", ["/a", "/b"]))


async def test_a_call_that_a_part_does_not_know_is_unsupported_and_says_why(tmp_path: Path) -> None:
    async with served(tmp_path) as channel:
        with pytest.raises(Problem, match="the registry's collector does not know this call.*Try again once") as caught:
            await CollectorClient(channel).recorded("a" * 16)
        assert caught.value.code == "unsupported"
