"""Proofs of life: three misses end a sandbox, one does not, and a cut-off control plane ends nothing."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from controlplane.cluster import Health
from controlplane.errors import Problem
from controlplane.lifecycle import Options
from controlplane.model import Sandbox, State
from tests.support.fake_cluster import FakeCluster, FakeSidecars
from tests.support.world import OWNER, SPEC, World, world

EVERY = Options(starts_in_flight=100, probe_every_ms=20_000)


class Asked(FakeSidecars):
    """Counts who is asked, and at most how many at once; silent ones take a second to fail."""

    asked = 0
    at_once = 0
    most_at_once = 0

    async def health(self, address: str, token: str) -> Health:
        self.asked += 1
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await asyncio.sleep(0.01)
            return await super().health(address, token)
        finally:
            self.at_once -= 1


@asynccontextmanager
async def running(sidecars: FakeSidecars, number: int) -> AsyncIterator[tuple[World, list[Sandbox]]]:
    async with world(FakeCluster(), sidecars, EVERY) as plane:
        creates = await asyncio.gather(*(plane.service.create(OWNER, SPEC) for _ in range(number)))
        yield plane, [created.sandbox for created in creates]


async def test_a_sidecar_that_stays_silent_is_lost() -> None:
    sidecars = Asked()
    async with running(sidecars, 5) as (plane, (silent, *others)):
        sidecars.dead.add(silent.address or "")
        await asyncio.sleep(35)
        with pytest.raises(Problem, match="sandbox_lost: alive for the kubelet, but its sidecar does not answer: unix"):
            await plane.service.alive(OWNER, silent.id)
        for other in others:
            assert (await plane.service.get(OWNER, other.id)).state is State.RUNNING


async def test_a_miss_or_two_are_nothing() -> None:
    sidecars = Asked()
    async with running(sidecars, 1) as (plane, (sandbox,)):
        sidecars.dead.add(sandbox.address or "")
        await asyncio.sleep(29)
        assert sidecars.asked == 2, "not missed twice, but not yet three times"
        sidecars.dead.clear()
        await asyncio.sleep(20)
        assert (await plane.service.get(OWNER, sandbox.id)).state is State.RUNNING


async def test_when_most_are_silent_it_is_us() -> None:
    sidecars = Asked()
    async with running(sidecars, 10) as (plane, sandboxes):
        sidecars.dead.update(sandbox.address or "" for sandbox in sandboxes[:6])
        await asyncio.sleep(60)
        assert len(await plane.service.find(OWNER, {})) == 10
        sidecars.dead.difference_update(sandbox.address or "" for sandbox in sandboxes[:3])
        await asyncio.sleep(60)
        assert len(await plane.service.find(OWNER, {})) == 7


async def test_rounds_are_bounded_and_paced() -> None:
    sidecars = Asked()
    async with running(sidecars, 100):
        sidecars.asked = 0
        await asyncio.sleep(60)
        assert sidecars.asked == pytest.approx(300, abs=100)
        assert sidecars.most_at_once == 16


async def test_those_that_answer_do_not_wait_for_those_that_do_not() -> None:
    sidecars = Asked()
    async with running(sidecars, 60) as (_, sandboxes):
        sidecars.dead.update(sandbox.address or "" for sandbox in sandboxes[:25])
        sidecars.asked = 0
        await asyncio.sleep(21)
        assert sidecars.asked == 60


async def test_nobody_is_asked_when_it_is_switched_off() -> None:
    sidecars = Asked()
    async with world(FakeCluster(), sidecars) as plane:
        await plane.service.create(OWNER, SPEC)
        await asyncio.sleep(100)
    assert sidecars.asked == 0
