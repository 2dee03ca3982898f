"""Taking sandboxes off: as many at a time as the cluster bears, and nobody waits for an engine that never answers."""

import asyncio

import pytest
from structlog.typing import EventDict

from controlplane.errors import Problem
from controlplane.lifecycle import Options
from controlplane.model import SandboxSpec
from tests.support.fake_cluster import FakeCluster
from tests.support.world import OWNER, SPEC, world


async def test_a_stop_that_hangs_does_not_hold_the_end_back() -> None:
    cluster = FakeCluster(stop_s=3600)
    loop = asyncio.get_running_loop()
    async with world(cluster) as plane:
        sandbox = (await plane.create(OWNER, SPEC)).sandbox
        delete = asyncio.create_task(plane.service.delete(OWNER, sandbox.id, wait_s=60))
        await asyncio.sleep(1)
        left_s = loop.time()
    assert loop.time() - left_s < 11
    assert list(cluster.held) == [sandbox.id]
    await asyncio.wait([delete])
    assert delete.cancelled()


async def test_what_is_not_stopped_for_two_minutes_is_counted_until_it_is() -> None:
    cluster = FakeCluster(stop_s=200)
    async with world(cluster) as plane:

        async def unstopped() -> int:
            return (await plane.service.levels()).unstopped

        made = [(await plane.create(OWNER, SPEC)).sandbox for _ in range(3)]
        for sandbox in made[:2]:
            await plane.service.delete(OWNER, sandbox.id)
        await asyncio.sleep(119)
        await plane.service.delete(OWNER, made[2].id)
        assert await unstopped() == 0
        await asyncio.sleep(2)
        assert await unstopped() == 2
        assert b"rollbox_sandboxes_not_stopped 2.0" in plane.deps.metrics.render(await plane.service.levels())[0]
        await asyncio.sleep(80)
        assert await unstopped() == 0


async def test_a_thousand_are_confirmed_in_time_where_the_cluster_takes_them_at_once() -> None:
    cluster = FakeCluster(stops_at_once=4096, stop_s=20)
    spec = SandboxSpec(image="a", labels={"run": "r1"})
    async with world(cluster, options=Options(starts_in_flight=1024)) as plane:
        await asyncio.gather(*(plane.create(OWNER, spec) for _ in range(1000)))
        deleted = await plane.service.delete_all(OWNER, {"run": "r1"}, wait_s=60)
        assert len(deleted.ids) == 1000
        assert deleted.failed == {}


async def test_a_cluster_that_is_away_is_told_of_in_a_few_lines(
    said: list[EventDict], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = FakeCluster(stops_at_once=4096)

    async def away(_: str) -> None:
        raise Problem("internal", "the API server is away")

    async with world(cluster, options=Options(starts_in_flight=1024)) as plane:
        await asyncio.gather(*(plane.create(OWNER, SPEC) for _ in range(100)))
        with monkeypatch.context() as patch:
            patch.setattr(cluster, "stop", away)
            deleting = asyncio.create_task(plane.service.delete_all(OWNER, {}, wait_s=60))
            await asyncio.sleep(20)
        assert (await deleting).failed == {}
    assert [one["event"] for one in said] == ["ended sandbox is still on the cluster, retrying"] * 8 + [
        "all ended sandboxes are off the cluster again"
    ]
    assert said[-1]["most_at_once"] == 100
