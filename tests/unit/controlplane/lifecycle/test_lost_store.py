"""A store that was emptied: what was ended stays ended, whoever did not hear of it, and however soon others rebuild."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from controlplane.errors import Problem
from controlplane.model import Sandbox, State
from controlplane.store import Changed, Resync
from tests.support.fake_cluster import FakeCluster, FakeSidecars
from tests.support.refilled import refilled
from tests.support.shared_store import SharedMemory
from tests.support.virtual_time import VirtualClock
from tests.support.world import OWNER, SPEC, World, world


@asynccontextmanager
async def pair(cluster: FakeCluster) -> AsyncIterator[tuple[SharedMemory, World, World]]:
    """Two replicas on one store."""
    core, sidecars = SharedMemory(VirtualClock()), FakeSidecars()
    async with (
        world(cluster, sidecars, store=core.view("a")) as a,
        world(cluster, sidecars, store=core.view("b")) as b,
    ):
        await asyncio.sleep(0.01)  # both follow the feed
        yield core, a, b


async def test_an_end_is_known_although_the_store_was_emptied() -> None:
    async with pair(FakeCluster(annotates_behind=True)) as (core, a, b):
        sandbox = (await a.create(OWNER, SPEC, "k")).sandbox
        await a.service.delete(OWNER, sandbox.id, wait_s=60)
        core.empty()
        assert (await b.service.get(OWNER, sandbox.id)).state is State.ENDED
        with pytest.raises(Problem, match="deleted"):
            await a.create(OWNER, SPEC, "k")


async def test_one_that_is_being_stopped_is_not_adopted() -> None:
    async with pair(FakeCluster(annotates_behind=True, stop_s=10)) as (core, a, b):
        sandbox = (await a.create(OWNER, SPEC)).sandbox
        await asyncio.sleep(6)  # its facts are written: it looks alive
        delete = asyncio.create_task(a.service.delete(OWNER, sandbox.id, wait_s=60))
        await asyncio.sleep(1)
        core.empty()
        found = await b.service.get(OWNER, sandbox.id)
        assert (found.state, found.end and found.end.cause) == (State.ENDING, "deleted")
        assert (await delete).state is State.ENDED
        assert a.cluster.held == {}


async def test_what_another_replica_still_holds_does_not_bring_an_ended_one_back() -> None:
    async with pair(FakeCluster(annotates_behind=True, ready_s=None)) as (core, a, b):
        create = asyncio.create_task(a.create(OWNER, SPEC, "k"))
        await asyncio.sleep(1)
        (sandbox,) = await b.service.find(OWNER, {})
        deaf = core.feeds.pop("a")
        await b.service.delete(OWNER, sandbox.id, wait_s=60)
        core.empty()
        core.feeds["a"] = deaf
        deaf.put_nowait(Resync())
        with pytest.raises(Problem, match="deleted"):
            await create
        await asyncio.sleep(5)
        assert (await a.service.get(OWNER, sandbox.id)).state is State.ENDED
        assert a.cluster.held == {}


async def test_one_that_is_ready_does_not_end_as_overdue_because_who_started_it_had_not_heard() -> None:
    async with pair(cluster := FakeCluster(annotates_behind=True, ready_s=None)) as (core, a, b):
        waiting = asyncio.create_task(a.create(OWNER, SPEC, "k"))
        await asyncio.sleep(1)
        (sandbox,) = await b.service.find(OWNER, {})
        deaf = core.feeds.pop("a")
        # Its push lands at the other replica, which answers whoever asks there.
        await cluster.push_now(sandbox.id)
        assert (await b.create(OWNER, SPEC, "k")).sandbox.state is State.RUNNING
        core.empty()
        await a.service._core.store.ensure()  # it puts back what it holds: a start
        core.feeds["a"] = deaf
        deaf.put_nowait(Resync())
        await asyncio.sleep(SPEC.start_timeout_ms / 1000 + 10)
        assert (await b.service.get(OWNER, sandbox.id)).state is State.RUNNING
        assert (await waiting).sandbox.id == sandbox.id


async def test_an_end_that_a_rebuild_went_without_is_put_back() -> None:
    async with pair(FakeCluster(annotates_behind=True, stop_s=20)) as (core, a, b):
        sandbox = (await a.create(OWNER, SPEC)).sandbox
        await asyncio.sleep(6)
        delete = asyncio.create_task(b.service.delete(OWNER, sandbox.id, wait_s=60))
        await asyncio.sleep(1)
        core.empty()
        await core.view("c").restore(sandbox)
        await refilled(core.view("c"))  # before `a` and `b` knew of the loss
        core.tell("c", Changed(sandbox, 0))
        await asyncio.sleep(3)
        assert (await a.service.get(OWNER, sandbox.id)).state is State.ENDING
        assert (await b.deps.store.usage(OWNER)).sandboxes == 0
        assert (await delete).state is State.ENDED
        with a.service.board.subscribe() as feed:
            assert not (await feed.next()).snapshot.routes


async def test_an_extension_is_known_although_who_took_it_died_before_the_cluster_heard_of_it() -> None:
    async with pair(FakeCluster(annotates_behind=True)) as (core, a, b):
        sandbox = (await a.create(OWNER, SPEC)).sandbox
        await asyncio.sleep(6)
        longer = await a.service.extend(OWNER, sandbox.id, 2 * SPEC.ttl_ms)
        a.service._core.annotations.forget(sandbox.id)
        for task in a.service._core._loops:
            task.cancel()
        core.empty()
        await asyncio.sleep(SPEC.ttl_ms / 1000)
        found = await b.service.get(OWNER, sandbox.id)
        assert (found.state, found.expires_at_ms) == (State.RUNNING, longer.expires_at_ms)


async def test_an_extension_that_a_rebuild_went_without_is_put_back() -> None:
    async with pair(FakeCluster(annotates_behind=True)) as (core, a, b):
        sandbox = (await a.create(OWNER, SPEC)).sandbox
        longer = await a.service.extend(OWNER, sandbox.id, 2 * SPEC.ttl_ms)
        await asyncio.sleep(1)
        core.empty()
        await core.view("c").restore(sandbox.with_port(80, public=True, now_ms=0))
        await refilled(core.view("c"))
        await asyncio.sleep(3)
        found = await b.service.get(OWNER, sandbox.id)
        assert (found.expires_at_ms, found.public_ports) == (longer.expires_at_ms, (80,))


async def test_what_was_put_back_in_vain_is_put_back_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async with pair(FakeCluster(annotates_behind=True, stop_s=20)) as (core, a, b):
        sandbox = (await a.create(OWNER, SPEC)).sandbox
        await asyncio.sleep(6)
        delete = asyncio.create_task(b.service.delete(OWNER, sandbox.id, wait_s=60))
        await asyncio.sleep(1)
        for store in (a.service._core.store, b.service._core.store):
            monkeypatch.setattr(store, "restore", failing_once(store.restore))
        core.empty()
        await core.view("c").restore(sandbox)
        await refilled(core.view("c"))
        core.tell("c", Changed(sandbox, 0))
        await asyncio.sleep(8)
        assert (await a.service.get(OWNER, sandbox.id)).state is State.ENDING
        assert (await delete).state is State.ENDED


def failing_once(restore: Callable[[Sandbox], Awaitable[bool]]) -> Callable[[Sandbox], Awaitable[bool]]:
    """The first time it does not answer."""
    failures = [Problem("upstream_timeout", "the store is away")]

    async def restored(sandbox: Sandbox) -> bool:
        if failures:
            raise failures.pop()
        return await restore(sandbox)

    return restored


async def test_what_nobody_has_on_record_is_found_soon_although_who_looked_for_it_has_died() -> None:
    async with pair(cluster := FakeCluster(annotates_behind=True)) as (_, a, b):
        await asyncio.sleep(10)
        sandbox = (await a.create(OWNER, SPEC)).sandbox
        held = cluster.held[sandbox.id]
        await a.service.delete(OWNER, sandbox.id, wait_s=60)
        cluster.held[sandbox.id] = held  # its start overtook its stop
        (looks,) = [one for one in (a, b) if "orphans" in one.service._core.replicas._held_leases]
        for task in looks.service._core._loops:
            task.cancel()
        await asyncio.sleep(14)
        assert cluster.held == {}


async def test_whoever_waits_for_a_start_that_is_forgotten_asks_again_and_has_another_one() -> None:
    # There is no pod yet: only who began it can put it back.
    async with pair(cluster := FakeCluster(annotates_behind=True, start_s=60)) as (core, a, b):
        begun = asyncio.create_task(a.create(OWNER, SPEC, "k"))
        await asyncio.sleep(1)
        waiting = asyncio.create_task(b.create(OWNER, SPEC, "k"))
        await asyncio.sleep(1)
        for task in (begun, *a.service._core._loops, *a.service._core.starts._tasks.values()):
            task.cancel()
        await asyncio.sleep(0)
        core.empty()
        async with asyncio.timeout(20):
            with pytest.raises(Problem, match="upstream_timeout: .* forgotten"):
                await waiting
        cluster.start_s = 0
        assert (await b.create(OWNER, SPEC, "k")).sandbox.state is State.RUNNING


async def test_a_start_that_is_not_on_the_cluster_yet_keeps_its_key_when_the_store_is_lost() -> None:
    async with pair(FakeCluster(annotates_behind=True, start_s=3)) as (core, a, b):
        begun = asyncio.create_task(a.create(OWNER, SPEC, "k"))
        await asyncio.sleep(1)
        deaf = core.feeds.pop("a")  # it finds out by itself
        core.empty()
        await b.service._core.store.ensure()  # there is no pod that tells of it
        again = (await b.create(OWNER, SPEC, "k")).sandbox
        core.feeds["a"] = deaf
        deaf.put_nowait(Resync())
        assert again.id == (await begun).sandbox.id
