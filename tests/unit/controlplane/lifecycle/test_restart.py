"""A restart with a journal: why sandboxes ended is known for a day, and a deleted one does not come back."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from controlplane.cluster.engine.documents import FileDocuments
from controlplane.errors import Problem
from controlplane.lifecycle import Dependencies, Options, RouteBoard, Sandboxes, SigningKey
from controlplane.model import State
from controlplane.store import Journal, JournaledStore
from controlplane.telemetry import Metrics
from tests.support.fake_cluster import FakeCluster, FakeGateways, FakeSidecars
from tests.support.virtual_time import VirtualClock
from tests.support.world import OWNER, PRIVATE, SPEC


@asynccontextmanager
async def plane(folder: Path, cluster: FakeCluster) -> AsyncIterator[tuple[Sandboxes, RouteBoard]]:
    clock = VirtualClock()
    key = SigningKey(PRIVATE, clock)
    board = RouteBoard(clock, key)
    deps = Dependencies(
        store=JournaledStore(clock, Journal(folder / "ends.jsonl")),
        cluster=cluster,
        sidecars=FakeSidecars(),
        gateways=FakeGateways(),
        key=key,
        clock=clock,
        metrics=Metrics(),
        board=board,
        documents=FileDocuments(),
    )
    async with Sandboxes.running(deps, Options()) as service:
        cluster.push = service.accept_push
        yield service, board
        await cluster.settle()


async def test_callers_and_gateways_hear_of_an_end_from_before_the_restart(tmp_path: Path) -> None:
    cluster = FakeCluster()
    async with plane(tmp_path, cluster) as (service, _):
        sandbox = (await service.create(OWNER, SPEC, "k")).sandbox
        ended = await service.delete(OWNER, sandbox.id, wait_s=60)
    async with plane(tmp_path, cluster) as (service, board):
        after = await service.get(OWNER, sandbox.id)
        assert (after.state, after.end, after.timings_ms) == (State.ENDED, ended.end, ended.timings_ms)
        with pytest.raises(Problem, match="deleted"):
            await service.create(OWNER, SPEC, "k")
        with board.subscribe() as feed:
            (end,) = (await feed.next()).snapshot.ends
            assert (end.sandbox_id, end.cause) == (sandbox.id, "deleted")


async def test_a_sandbox_that_was_being_deleted_is_not_adopted(tmp_path: Path) -> None:
    cluster = FakeCluster(stop_s=3600)
    async with plane(tmp_path, cluster) as (service, _):
        sandbox = (await service.create(OWNER, SPEC)).sandbox
        with pytest.raises(Problem, match="upstream_timeout"):
            await service.delete(OWNER, sandbox.id, wait_s=60)
    assert list(cluster.held) == [sandbox.id]
    cluster.stop_s = 0.1
    async with plane(tmp_path, cluster) as (service, _):
        with pytest.raises(Problem, match="deleted"):
            await service.alive(OWNER, sandbox.id)
    assert cluster.held == {}
