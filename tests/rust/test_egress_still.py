"""A replica that stood still, and has lost its feed, takes no sandbox back from the one that serves it meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
from grpc import aio

from controlplane.api.feed_key import FeedDoor
from controlplane.api.listeners import serving_routes
from controlplane.clock import SystemClock
from controlplane.cluster.protocol import Started
from controlplane.egress import EgressOptions
from controlplane.lifecycle import Options
from controlplane.settings import Listen
from controlplane.telemetry import Metrics
from controlplane.wire import agent_pb2_grpc
from tests.bench.lifecycle.links import front
from tests.bench.lifecycle.stagehand import Sidecars
from tests.contract.egress_suite import OPEN, egress, when
from tests.support.egress_program import KEY, admin, egress_process
from tests.support.fake_cluster import FakeCluster
from tests.support.waiting import until
from tests.support.world import OWNER, SPEC, World, world

NAMES = ("e1", "e2")


@dataclass
class Sidecar:
    """The sidecar of the one sandbox: what has connected to it, by process."""

    port: int
    open: dict[int, list[asyncio.StreamWriter]] = field(default_factory=dict)

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        told = writer.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        self.open.setdefault(struct.unpack("3i", told)[0], []).append(writer)
        await front(self.port)(reader, writer)

    def came(self, pid: int) -> int:
        """How many connections a process has made."""
        return len(self.open.get(pid, ()))

    def end(self, pid: int) -> None:
        """Ends all that it has made."""
        for one in self.open[pid]:
            one.close()


@asynccontextmanager
async def sidecar(path: Path) -> AsyncIterator[Sidecar]:
    server = aio.server()
    agent_pb2_grpc.add_AgentServicer_to_server(Sidecars(), server)  # type: ignore[no-untyped-call]
    found = Sidecar(server.add_insecure_port("127.0.0.1:0"))
    await server.start()
    try:
        async with await asyncio.start_unix_server(found.talk, path):
            yield found
    finally:
        await server.stop(grace=None)


@dataclass
class Network:
    """What one replica's feed goes over.

    Attributes:
        lost: whether it carries nothing, and tells nobody.
        carried: how many pieces it has.
    """

    feed: Path
    lost: bool = False
    carried: int = 0

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.lost:
            writer.close()
            return
        answers, requests = await asyncio.open_unix_connection(self.feed)
        answering = asyncio.create_task(self._carry(answers, writer))
        await self._carry(reader, requests)
        requests.close()
        await answering
        writer.close()

    async def _carry(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while some := await source.read(1 << 16):
                if not self.lost:
                    sink.write(some)
                    self.carried += 1
        if not self.lost:
            sink.close()


@dataclass
class Replica:
    """One of the two."""

    process: asyncio.subprocess.Process
    network: Network
    metrics: Path

    async def metric(self, name: str) -> float:
        async with (
            aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(self.metrics))) as session,
            session.get("http://egress/metrics") as answer,
        ):
            lines = (await answer.text()).splitlines()
        return next(float(one.split()[-1]) for one in lines if one.startswith(f"{name} "))


class Placed(FakeCluster):
    """All sandboxes have the one sidecar."""

    sidecar: str

    def _started(self, sandbox_id: str) -> Started:
        return Started(self._address(sandbox_id))

    def _address(self, sandbox_id: str) -> str:
        return self.sidecar


@asynccontextmanager
async def plane(folder: Path) -> AsyncIterator[World]:
    cluster = Placed()
    cluster.sidecar = f"unix:{folder / 'sidecar.sock'}"
    listen = Listen(path=folder / "routes.sock")
    async with world(cluster, clock=SystemClock(), options=Options(egress=EgressOptions(3128))) as made:
        service, door = made.service, FeedDoor(KEY, Metrics())
        async with serving_routes(service.board, service.activity, listen, service.egress_feed, door):
            yield made


@asynccontextmanager
async def replica(program: Path, folder: Path, name: str) -> AsyncIterator[Replica]:
    network, way = Network(folder / "routes.sock"), folder / f"{name}-feed.sock"
    async with (
        await asyncio.start_unix_server(network.talk, way),
        egress_process(program, folder, name, way) as process,
    ):
        yield Replica(process, network, admin(folder, name))


async def test_a_replica_that_stood_still_takes_no_sandbox_from_its_successor(program: Path, tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        made = await stack.enter_async_context(plane(tmp_path))
        there = await stack.enter_async_context(sidecar(tmp_path / "sidecar.sock"))
        both = {one: await stack.enter_async_context(replica(program, tmp_path, one)) for one in NAMES}
        board = egress(made).assignments
        await when(lambda: {*board.connected} == {*NAMES})
        sandbox = (await made.create(OWNER, SPEC)).sandbox
        assert (await made.service.egress.switch(OWNER, sandbox.id, OPEN, 60)).sandbox.egress.in_force
        first = board.replica(sandbox.id)
        assert first is not None
        still = both.pop(first)
        ((second, successor),) = both.items()
        # The answer to its report, and heartbeats: nothing that is under way would tell it that the network is lost.
        quiet = still.network.carried + 4
        await when(lambda: still.network.carried >= quiet)
        before = there.came(still.process.pid)
        still.process.send_signal(signal.SIGSTOP)
        try:
            still.network.lost = True
            await when(lambda: board.replica(sandbox.id) == second and there.came(successor.process.pid) > 0)
            # As its relay does.
            there.end(still.process.pid)
        finally:
            still.process.send_signal(signal.SIGCONT)

        async def tried() -> bool:
            return await still.metric("rollbox_egress_feed_reconnects_total") > 3

        await until(tried)
        assert (before, there.came(still.process.pid)) == (2, 2)
        assert await successor.metric("rollbox_egress_links") == 1
        still.network.lost = False
        await when(lambda: there.came(still.process.pid) == 4)
