"""Two control planes on a real Redis: the push elsewhere, a crowd, a flush, a restart of the Redis."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from redis.asyncio import Redis

from controlplane.clock import SystemClock
from controlplane.cluster.documents import Documents
from controlplane.cluster.engine.documents import FileDocuments
from controlplane.lifecycle import Created, Options
from controlplane.lifecycle.record.callers import new_caller
from controlplane.lifecycle.service.groups import Groups
from controlplane.model import Sandbox, SandboxSpec, State, Usage, pool_owner
from controlplane.store import RedisStore
from tests.support.eventually import eventually
from tests.support.fake_cluster import FakeCluster
from tests.support.redis_server import redis_server
from tests.support.refilled import refilled
from tests.support.waiting import until
from tests.support.world import OWNER, SPEC, World, world

ENV_SPEC = SandboxSpec(image="a", settings_digest="d" * 64)
TEMPLATE = SandboxSpec(image="a")


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    with redis_server(tmp_path) as url:
        yield url


@asynccontextmanager
async def replica(
    url: str, cluster: FakeCluster, name: str, documents: Documents | None = None
) -> AsyncIterator[World]:
    """A control plane; pushes land at the one that was opened last."""
    clock = SystemClock()
    async with (
        RedisStore.open(url, installation="t", clock=clock, replica=name) as store,
        world(cluster, options=Options(starts_in_flight=64), clock=clock, store=store, documents=documents) as plane,
    ):
        yield plane


@asynccontextmanager
async def pooled(url: str, warm: int) -> AsyncIterator[tuple[World, World]]:
    """Two control planes and a pool that is full once."""
    cluster, documents = FakeCluster(start_s=0.01, annotates_behind=True), FileDocuments()
    sizes = {"min_warm": warm, "max_warm": warm, "auto": False, "starts_per_minute": warm}
    await documents.put("pools", "p", {"template": {"image": ENV_SPEC.image}, **sizes}, None)
    async with replica(url, cluster, "a", documents) as a, replica(url, cluster, "b", documents) as b:
        await until(lambda: is_warm(a, warm), 120)
        yield a, b


async def is_warm(plane: World, number: int) -> bool:
    return (await plane.deps.store.counts())[State.WARM] >= number


@pytest.fixture
def unwritten(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From then on a replica keeps for itself what it writes behind, however slow the machine."""

    def keep() -> None:
        for name, seconds in (("QUIET_S", 60.0), ("LATE_S", 60.0), ("FLUSH_WITHIN_S", 0.0)):
            monkeypatch.setattr(f"controlplane.lifecycle.record.annotations.{name}", seconds)

    return keep


async def recounted(plane: World, owner: str | None) -> Usage:
    return sum((Usage.of(one) for one in await plane.deps.store.find(owner, {})), Usage())


async def ended_at(plane: World, sandbox_id: str) -> bool:
    found = await plane.service.get(OWNER, sandbox_id)
    return found.state is State.ENDED and found.end is not None


async def running(plane: World) -> int:
    return (await plane.deps.store.counts())[State.RUNNING]


async def test_a_crowd_created_at_one_is_ready_by_pushes_at_the_other(url: str) -> None:
    cluster = FakeCluster(start_s=0.01, annotates_behind=True)
    async with replica(url, cluster, "a") as a, replica(url, cluster, "b") as b:
        specs = [ENV_SPEC, SPEC] * 50
        created = await asyncio.gather(*(a.create(OWNER, spec, f"k{n}") for n, spec in enumerate(specs)))
        assert len({one.sandbox.id for one in created}) == 100
        assert cluster.most_at_once <= 64
        assert await running(b) == 100
        again = await b.create(OWNER, ENV_SPEC, "k0")
        assert (again.replayed, again.sandbox.id) == (True, created[0].sandbox.id)
        deleted = await b.service.delete_all(OWNER, {}, wait_s=60)
        assert len(deleted.ids) == 100
        assert await a.service.find(OWNER, {}) == []
        assert cluster.held == {}


async def test_a_group_asked_for_at_both_is_one_group(url: str) -> None:
    cluster = FakeCluster(start_s=0.01, annotates_behind=True)
    async with replica(url, cluster, "a") as a, replica(url, cluster, "b") as b:
        asked = (
            Groups(one.service).create(OWNER, "g", ENV_SPEC, 16, partial=False, caller=new_caller(), begun=[])
            for one in (a, b)
        )
        one, two = await asyncio.gather(*asked)
        ids = [made.id for made in one.values() if isinstance(made, Sandbox)]
        assert [made.id for made in two.values() if isinstance(made, Sandbox)] == ids
        assert len({*ids}) == len(cluster.held) == 16
        assert {*(await Groups(b.service).get(OWNER, "g"))} == {*range(16)}
        assert len((await Groups(b.service).delete(OWNER, "g", 16, wait_s=60)).ids) == 16
        assert cluster.held == {}


async def test_a_flush_in_the_middle_loses_nothing_and_counts_nothing_twice(url: str) -> None:
    cluster = FakeCluster(start_s=0.01, annotates_behind=True)
    async with replica(url, cluster, "a") as a, replica(url, cluster, "b") as b, Redis.from_url(url) as redis:
        first = await asyncio.gather(*(a.create(OWNER, SPEC, f"k{n}") for n in range(20)))
        before, cluster.ready_s = {*cluster.held}, None
        starting = [asyncio.create_task(a.create(OWNER, ENV_SPEC, f"s{n}")) for n in range(10)]
        await eventually(lambda: len(cluster.held) == 30)
        await redis.flushall()
        pushes = asyncio.gather(*(cluster.get_ready(one) for one in {*cluster.held} - before))
        cluster.ready_s = 0.02
        later = await asyncio.gather(*(b.create(OWNER, SPEC, f"l{n}") for n in range(5)))
        await pushes
        assert {one.sandbox.state for one in await asyncio.gather(*starting)} == {State.RUNNING}
        assert await running(a) == 35
        again = await asyncio.gather(*(b.create(OWNER, SPEC, f"k{n}") for n in range(20)))
        assert [one.sandbox.id for one in again] == [one.sandbox.id for one in first]
        assert len(later) == 5
        assert len(cluster.held) == 35


async def test_a_redis_that_was_restarted_without_its_last_writes_gives_nothing_twice(
    tmp_path: Path, unwritten: Callable[[], None]
) -> None:
    with ExitStack() as server:
        url = server.enter_context(redis_server(tmp_path))
        async with pooled(url, 4) as (a, b):
            unwritten()
            ending = (await a.create(OWNER, SPEC, "gone")).sandbox
            async with Redis.from_url(url) as redis:
                await redis.save()
            first = await at_each("k", a, b)
            await b.service.delete(OWNER, ending.id, wait_s=60)
            server.close()
            server.enter_context(redis_server(tmp_path))
            more = await at_each("l", a, b)
            assert len({one.sandbox.id for one in (*first, *more)}) == 4
            again = await at_each("k", a, b)
            assert [(one.sandbox.id, one.replayed) for one in again] == [(one.sandbox.id, True) for one in first]
            assert await ended_at(a, ending.id)
            assert await a.deps.store.usage(OWNER) == await recounted(a, OWNER)


async def at_each(key: str, *planes: World) -> list[Created]:
    """A create at each."""
    asked = (plane.create(OWNER, ENV_SPEC, f"{key}{number}") for number, plane in enumerate(planes))
    return await asyncio.gather(*asked)


async def test_a_replica_that_leaves_hands_its_starts_over(url: str) -> None:
    cluster = FakeCluster(start_s=0.2, ready_s=0.5, annotates_behind=True)
    async with replica(url, cluster, "b") as b:
        async with replica(url, cluster, "a") as a:
            cluster.push = b.service.accept_push
            for number in range(5):
                await a.request(OWNER, ENV_SPEC, f"k{number}")
            await eventually(lambda: len(cluster.started) == 5)
            await a.service.drain(delete=False)
        created = await asyncio.gather(*(b.create(OWNER, ENV_SPEC, f"k{n}") for n in range(5)))
        assert all(one.replayed and one.sandbox.state is State.RUNNING for one in created)
        assert len(cluster.held) == 5


async def test_a_redis_that_was_restarted_empty_is_filled_again(tmp_path: Path) -> None:
    cluster = FakeCluster(start_s=0.01, annotates_behind=True)
    with redis_server(tmp_path) as url:
        async with replica(url, cluster, "a") as a, replica(url, cluster, "b") as b:
            sandbox = (await a.create(OWNER, SPEC, "k")).sandbox
            # Without its facts nobody could tell what the restarted one is to be filled with.
            await eventually(lambda: cluster.held[sandbox.id].facts)
            async with Redis.from_url(url) as redis:
                with pytest.raises(Exception, match="."):
                    await redis.execute_command("SHUTDOWN", "NOSAVE")  # type: ignore[no-untyped-call]
            (tmp_path / "redis.sock").unlink(missing_ok=True)
            with redis_server(tmp_path):
                assert (await b.service.get(OWNER, sandbox.id)).state is State.RUNNING
                assert (await a.create(OWNER, SPEC, "k")).replayed
                # News go round again, too.
                other = (await a.create(OWNER, SPEC)).sandbox
                await b.service.delete(OWNER, other.id)
                await until(lambda: ended_at(a, other.id), 120)


async def test_claims_at_both_never_get_the_same_and_usage_is_exact(url: str) -> None:
    async with pooled(url, 30) as (a, b):
        owners = [OWNER, "bob", "carol"]
        # Every create is asked for at both at once, as by a client whose first answer was lost.
        asked = [(owners[n % 3], ENV_SPEC if n % 5 else TEMPLATE, f"k{n}") for n in range(40)]
        twice = await asyncio.gather(*(plane.create(*one) for one in asked for plane in (a, b)))
        assert [one.sandbox.id for one in twice[::2]] == [one.sandbox.id for one in twice[1::2]]
        assert all(one.replayed != other.replayed for one, other in zip(twice[::2], twice[1::2], strict=True))
        assert len({one.sandbox.id for one in twice}) == 40
        assert sum(one.sandbox.warm for one in twice[::2]) >= 30
        for owner in (None, *owners, pool_owner("p")):
            assert await b.deps.store.usage(owner) == await recounted(a, owner)


async def test_a_flush_right_after_claims_gives_none_of_them_to_anybody_else(url: str) -> None:
    async with pooled(url, 10) as (a, b), Redis.from_url(url) as redis:
        claimed = await asyncio.gather(*((a, b)[n % 2].create(OWNER, ENV_SPEC, f"k{n}") for n in range(6)))
        assert all(one.sandbox.warm for one in claimed)
        await redis.flushall()
        others = await asyncio.gather(*((a, b)[n % 2].create("bob", TEMPLATE, f"o{n}") for n in range(6)))
        mine = [one.sandbox.id for one in claimed]
        assert not {one.sandbox.id for one in others} & set(mine)
        again = await asyncio.gather(*((b, a)[n % 2].create(OWNER, ENV_SPEC, f"k{n}") for n in range(6)))
        assert [one.sandbox.id for one in again] == mine
        for owner in (None, OWNER, "bob", pool_owner("p")):
            assert await b.deps.store.usage(owner) == await recounted(a, owner)


async def test_what_a_replica_claimed_and_ended_that_died_before_the_flush_the_other_knows(
    url: str, unwritten: Callable[[], None]
) -> None:
    async with pooled(url, 4) as (a, b), Redis.from_url(url) as redis:
        unwritten()
        first, second = [(await a.create(OWNER, ENV_SPEC, f"k{n}")).sandbox for n in range(2)]
        await a.service.delete(OWNER, second.id, wait_s=60)
        # As killed: nothing is written behind, nothing is put back.
        for task in (*a.service._core._loops, *a.service._core.starts._tasks.values()):
            task.cancel()
        assert "claim" not in a.cluster.held[first.id].facts
        await redis.flushall()
        others = await asyncio.gather(*(b.create("bob", TEMPLATE, f"o{n}") for n in range(4)))
        assert first.id not in {one.sandbox.id for one in others}
        assert (await b.service.get(OWNER, first.id)).state is State.RUNNING
        end = (await b.service.get(OWNER, second.id)).end
        assert end is not None
        assert end.cause == "deleted"
        assert (await b.create(OWNER, ENV_SPEC, "k0")).sandbox.id == first.id
        for owner in (None, OWNER, "bob", pool_owner("p")):
            assert await b.deps.store.usage(owner) == await recounted(b, owner)


async def test_a_replica_that_did_not_notice_the_flush_says_what_it_knows_nevertheless(
    url: str, unwritten: Callable[[], None]
) -> None:
    async with pooled(url, 4) as (a, b), Redis.from_url(url) as redis:
        unwritten()
        sandbox = (await a.create(OWNER, ENV_SPEC, "k")).sandbox
        for plane in (a, b):
            plane.service._core.annotations.forget(sandbox.id)
        await redis.flushall()
        # Whoever rebuilt it did so between two questions of both, and took the claimed one for the pool's.
        store = a.deps.store
        await store.restore(replace(sandbox, owner=pool_owner("p"), state=State.WARM, claimed_at_ms=None, version=0))
        await refilled(store)
        await until(lambda: b.deps.store.by_key(OWNER, "k"), 120)
        assert (await b.service.get(OWNER, sandbox.id)).state is State.RUNNING
        assert (await b.deps.store.usage(OWNER)).sandboxes == 1
