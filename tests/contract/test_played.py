"""The played clusters of benchmarks and soaks, and their sidecars, pass the suites of the real ones."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from grpc import aio

from controlplane.clock import SystemClock
from controlplane.cluster.sidecar import GrpcSidecars
from controlplane.lifecycle import SigningKey
from controlplane.model import Sandbox, SandboxSpec
from controlplane.wire import agent_pb2_grpc
from tests.bench.lifecycle.plane import PlayedCluster
from tests.bench.lifecycle.stagehand import Sidecars, Stagehand
from tests.chaos.cluster import Witness
from tests.chaos.events import Log
from tests.chaos.plane import MortalCluster
from tests.chaos.sidecars import Life, Watched
from tests.contract.cluster_suite import ClusterSuite
from tests.contract.sidecars_suite import SidecarsSuite, Up
from tests.support.silent_port import silent_port
from tests.support.world import PRIVATE, SPEC


@asynccontextmanager
async def connected(hand: Stagehand, kind: type[PlayedCluster], folder: Path) -> AsyncIterator[PlayedCluster]:
    """A control plane's end of this cluster while the block runs; nobody takes its sidecars' pushes."""
    socket = str(folder / "cluster.sock")
    with silent_port() as nobody:
        async with await asyncio.start_unix_server(hand.serve, socket), asyncio.TaskGroup() as group:
            answers, wishes = await asyncio.open_unix_connection(socket)
            cluster = kind(answers, wishes, nobody)
            hearing = group.create_task(cluster.receive())
            try:
                yield cluster
            finally:
                hearing.cancel()
                wishes.close()
                for push in hand._pushes:
                    push.cancel()


@asynccontextmanager
async def listening(sidecars: Any) -> AsyncIterator[str]:
    """Address of these sidecars while the block runs."""
    server = aio.server(options=[("grpc.so_reuseport", 0)])
    agent_pb2_grpc.add_AgentServicer_to_server(sidecars, server)  # type: ignore[no-untyped-call]
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        await server.stop(grace=None)


@asynccontextmanager
async def called(sidecars: Any) -> AsyncIterator[Up]:
    """The control plane's way to these sidecars while the block runs."""
    clock = SystemClock()
    one = Sandbox("sb-1", "alice", SPEC, clock.now_ms(), clock.now_ms() + 60_000, "f")
    with silent_port() as nobody:
        async with listening(sidecars) as address:
            token = SigningKey(PRIVATE, clock).token(one).text
            yield Up(GrpcSidecars(), one.id, address, token, gone=f"http://127.0.0.1:{nobody}")


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path / "log")


@pytest.fixture
def watched(log: Log) -> Watched:
    return Watched(random.Random(1), log)


@pytest.fixture
def spec() -> SandboxSpec:
    return SPEC


class TestPlayedCluster(ClusterSuite):
    """See `ClusterSuite`."""

    @pytest.fixture
    async def cluster(self, tmp_path: Path) -> AsyncIterator[PlayedCluster]:
        async with connected(Stagehand(0.0, 1), PlayedCluster, tmp_path) as found:
            yield found


class TestMortalCluster(ClusterSuite):
    """See `ClusterSuite`."""

    @pytest.fixture
    async def cluster(self, tmp_path: Path, watched: Watched, log: Log) -> AsyncIterator[PlayedCluster]:
        witness = Witness(0.0, 1, watched, random.Random(2), log)
        async with connected(witness, MortalCluster, tmp_path) as found:
            yield found


class TestPlayedSidecars(SidecarsSuite):
    """See `SidecarsSuite`."""

    @pytest.fixture
    async def up(self) -> AsyncIterator[Up]:
        async with called(Sidecars()) as found:
            yield found


class TestWatchedSidecars(SidecarsSuite):
    """See `SidecarsSuite`."""

    @pytest.fixture
    async def up(self, watched: Watched) -> AsyncIterator[Up]:
        watched.lives["sb-1"] = Life()
        async with called(watched) as found:
            yield found
