"""A lost store: one rebuild for all who ask, a bounded wait, and no way to hang."""

import asyncio

import pytest

from controlplane.errors import Problem
from controlplane.lifecycle.replicas.recovery import OTHERS_SAY_S
from controlplane.model import State
from tests.support.fake_cluster import FakeCluster
from tests.support.shared_store import SharedMemory
from tests.support.virtual_time import VirtualClock
from tests.support.world import OWNER, SPEC, world


async def test_a_crowd_that_finds_the_store_lost_rebuilds_it_once() -> None:
    core, cluster = SharedMemory(VirtualClock()), FakeCluster(annotates_behind=True)
    async with world(cluster, store=core.view("a")) as plane:
        sandbox = (await plane.create(OWNER, SPEC)).sandbox
        await asyncio.sleep(1)
        core.empty()
        found = await asyncio.gather(*(plane.service.get(OWNER, sandbox.id) for _ in range(100)))
        assert {one.state for one in found} == {State.RUNNING}
        assert core.rebuilds == 2  # the first was at the open


async def test_who_waits_for_a_rebuild_elsewhere_is_told_so_in_time() -> None:
    core = SharedMemory(VirtualClock())
    async with world(store=core.view("a")) as plane:
        core.empty()
        core.rebuilder, core.rebuilder_until_ms = "b", 1 << 62
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        with pytest.raises(Problem, match="upstream_timeout: the store was lost and is not rebuilt"):
            await plane.service.find(OWNER, {})
        assert loop.time() - began_s < 16
        core.rebuilder = ""
        assert await plane.service.find(OWNER, {}) == []


async def test_a_cluster_that_cannot_be_listed_is_the_answer_and_the_next_one_tries_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    core, cluster = SharedMemory(VirtualClock()), FakeCluster(annotates_behind=True)
    async with world(cluster, store=core.view("a")) as plane:

        async def broken() -> None:
            raise Problem("internal", "the API server is away")

        with monkeypatch.context() as patch:
            patch.setattr(cluster, "list", broken)
            core.empty()
            with pytest.raises(Problem, match="the API server is away"):
                await plane.service.find(OWNER, {})
        assert await plane.service.find(OWNER, {}) == []


async def test_a_store_that_does_not_answer_its_rebuild_is_away_and_nothing_is_broken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    core, cluster = SharedMemory(VirtualClock()), FakeCluster(annotates_behind=True)
    async with world(cluster, store=core.view("a")) as plane:
        for _ in range(3):
            await plane.create(OWNER, SPEC)
        await asyncio.sleep(6)  # their facts are written

        async def away(_: str) -> None:
            raise Problem("upstream_timeout", "the store is away")

        with monkeypatch.context() as patch:
            patch.setattr(plane.deps.store, "peek", away)
            core.empty()
            with pytest.raises(Problem, match="upstream_timeout: the store is away"):
                await plane.service.find(OWNER, {})
        assert len(await plane.service.find(OWNER, {})) == 3


async def test_who_leaves_while_it_waits_does_not_stop_the_rebuild() -> None:
    core, cluster = SharedMemory(VirtualClock()), FakeCluster(annotates_behind=True)
    async with world(cluster, store=core.view("a")) as plane:
        core.empty()
        core.rebuilder, core.rebuilder_until_ms = "b", 1 << 62
        waiting = asyncio.create_task(plane.service.find(OWNER, {}))
        await asyncio.sleep(1)
        waiting.cancel()
        core.rebuilder = ""
        await asyncio.sleep(OTHERS_SAY_S + 1)
        assert core.intact
