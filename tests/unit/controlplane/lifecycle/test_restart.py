"""A restart with a journal: why sandboxes ended is known for a day, and a deleted one does not come back."""

from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from controlplane.errors import Problem
from controlplane.model import State
from controlplane.store import Journal, JournaledStore
from tests.support.fake_cluster import FakeCluster
from tests.support.virtual_time import VirtualClock
from tests.support.world import OWNER, SPEC, World, world


def plane(folder: Path, cluster: FakeCluster) -> AbstractAsyncContextManager[World]:
    clock = VirtualClock()
    return world(cluster, clock=clock, store=JournaledStore(clock, Journal(folder / "ends.jsonl")))


async def test_callers_and_gateways_hear_of_an_end_from_before_the_restart(tmp_path: Path) -> None:
    cluster = FakeCluster()
    async with plane(tmp_path, cluster) as a:
        sandbox = (await a.create(OWNER, SPEC, "k")).sandbox
        ended = await a.service.delete(OWNER, sandbox.id, wait_s=60)
    async with plane(tmp_path, cluster) as a:
        after = await a.service.get(OWNER, sandbox.id)
        assert (after.state, after.end, after.timings_ms) == (State.ENDED, ended.end, ended.timings_ms)
        with pytest.raises(Problem, match="deleted"):
            await a.create(OWNER, SPEC, "k")
        with a.service.board.subscribe() as feed:
            (end,) = (await feed.next()).snapshot.ends
            assert (end.sandbox_id, end.cause) == (sandbox.id, "deleted")


async def test_a_sandbox_that_was_being_deleted_is_not_adopted(tmp_path: Path) -> None:
    cluster = FakeCluster(stop_s=3600)
    async with plane(tmp_path, cluster) as a:
        sandbox = (await a.create(OWNER, SPEC)).sandbox
        with pytest.raises(Problem, match="upstream_timeout"):
            await a.service.delete(OWNER, sandbox.id, wait_s=60)
    assert list(cluster.held) == [sandbox.id]
    cluster.stop_s = 0.1
    async with plane(tmp_path, cluster) as a:
        with pytest.raises(Problem, match="deleted"):
            await a.service.alive(OWNER, sandbox.id)
    assert cluster.held == {}
