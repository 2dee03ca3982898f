"""Where an owner's creates stand, whichever replica has them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from controlplane.lifecycle import Options
from controlplane.lifecycle.waiting.others import HOLDS_MS, MOST_TOLD, NOTE
from controlplane.model import SandboxSpec
from tests.support.fake_cluster import FakeCluster, room_for
from tests.support.shared_store import SharedMemory
from tests.support.virtual_time import VirtualClock
from tests.support.world import SPEC, World, world


@asynccontextmanager
async def pair(cluster: FakeCluster | None = None, most: int = 1) -> AsyncIterator[tuple[SharedMemory, World, World]]:
    cluster, core = cluster or FakeCluster(annotates_behind=True), SharedMemory(VirtualClock())
    options = Options(max_sandboxes=most)
    async with (
        world(cluster, options=options, store=core.view("a")) as a,
        world(cluster, options=options, store=core.view("b")) as b,
    ):
        yield core, a, b


async def test_every_replica_tells_the_places_of_all_in_the_order_in_which_they_came() -> None:
    async with pair() as (_, a, b):
        first = (await a.create("alice", SPEC)).sandbox
        creates = []
        for number in range(6):
            spec = SPEC.model_copy(update={"labels": {"n": str(number)}})
            creates.append(asyncio.create_task((a, b)[number % 2].create("alice", spec, f"k{number}")))
            await asyncio.sleep(0.01)
        creates.append(asyncio.create_task(b.create("bob", SPEC)))
        await asyncio.sleep(2)
        for plane in (a, b):
            use = await plane.service.quota_use("alice")
            assert (use.waiting, [place.key for place in use.places]) == (6, [f"k{n}" for n in range(6)])
            assert [dict(place.labels) for place in use.places] == [{"n": str(n)} for n in range(6)]
            assert {place.waits_for for place in use.places} <= {"total", ""}
            assert (await plane.service.quota_use("bob")).waiting == 1
        for create in creates:
            create.cancel()
        await a.service.delete("alice", first.id)
        await asyncio.sleep(2)
        assert [(await plane.service.quota_use("alice")).waiting for plane in (a, b)] == [0, 0]
        assert await a.deps.store.note(NOTE) == ""


async def test_a_replica_that_says_nothing_any_more_has_no_line() -> None:
    async with pair() as (_, a, b):
        await a.create("alice", SPEC)
        waits = asyncio.create_task(b.create("alice", SPEC))
        await asyncio.sleep(2)
        b.service._core.lines._told = False
        b.service._core.lines._own = dict  # type: ignore[method-assign]
        await asyncio.sleep(HOLDS_MS / 1000 + 1)
        assert (await a.service.quota_use("alice")).waiting == 0
        waits.cancel()


@pytest.mark.parametrize("text", ["{", "[]", '{"x": 1}', '{"x": {"at_ms": 0, "owners": {"alice": ["?"]}}}'])
async def test_a_note_of_another_version_is_no_line(text: str) -> None:
    async with pair() as (_, a, _b):
        assert await a.deps.store.write_note(NOTE, text, 60_000)
        assert (await a.service.quota_use("alice")).waiting == 0


async def test_of_many_that_wait_the_first_are_told_and_all_are_counted() -> None:
    async with pair() as (_, a, b):
        await a.create("alice", SPEC)
        owners = [f"o{n}" for n in range(10)]
        creates = [asyncio.create_task(b.create(owner, SPEC)) for owner in owners for _ in range(90)]
        await asyncio.sleep(3)
        uses = [await a.service.quota_use(owner) for owner in owners]
        assert [use.waiting for use in uses] == [90] * 10
        assert sum(len(use.places) for use in uses) == MOST_TOLD
        for create in creates:
            create.cancel()


async def test_what_no_node_takes_is_told_at_each_replica() -> None:
    cluster = FakeCluster(annotates_behind=True, room=room_for(1))
    async with pair(cluster, most=0) as (_, a, b):
        await a.create("alice", SPEC)
        spec = SandboxSpec(image="a", start_timeout_ms=60_000)
        waits = asyncio.create_task(b.create("alice", spec, "k"))
        await asyncio.sleep(2)
        for plane in (a, b):
            (told,) = (await plane.service.quota_use("alice")).unplaced
            assert (told[0].idempotency_key, told[1].code) == ("k", "capacity_unavailable")
            assert (await plane.service.quota_use("bob")).unplaced == []
        waits.cancel()
