"""Two control planes, one count: what waits at either is let in by what ends at any, and no limit is passed."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from controlplane.clock import SystemClock
from controlplane.cluster.engine.documents import FileDocuments
from controlplane.lifecycle import Options
from controlplane.model import SandboxSpec, Usage
from controlplane.store import RedisStore
from tests.support.fake_cluster import FakeCluster
from tests.support.redis_server import redis_server
from tests.support.waiting import until
from tests.support.world import World, world

# A start that waits for its turn waits for it as long as a test may take.
SPEC = SandboxSpec(image="a", start_timeout_ms=600_000)


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    with redis_server(tmp_path) as url:
        yield url


@asynccontextmanager
async def planes(url: str, options: Options, **quotas: int) -> AsyncIterator[tuple[World, World]]:
    """Two control planes and the owners' quotas of sandboxes."""
    cluster, documents, clock = FakeCluster(start_s=0.01, annotates_behind=True), FileDocuments(), SystemClock()
    for owner, sandboxes in quotas.items():
        await documents.put("quotas", owner, {"owner": owner, "sandboxes": sandboxes})
    async with (
        RedisStore.open(url, installation="t", clock=clock, replica="a") as one,
        RedisStore.open(url, installation="t", clock=clock, replica="b") as two,
        world(cluster, options=options, clock=clock, store=one, documents=documents) as a,
        world(cluster, options=options, clock=clock, store=two, documents=documents) as b,
    ):
        yield a, b


async def use(
    plane: World, owner: str, seen: Counter[str], most: Counter[str], may_go: asyncio.Event | None = None
) -> None:
    """Creates, is there for a moment, and until it may go, deletes; notes how many of an owner there were at a time."""
    sandbox = (await plane.create(owner, SPEC)).sandbox
    seen[owner] += 1
    most[owner] = max(most[owner], seen[owner])
    await asyncio.sleep(0.01)
    if may_go is not None:
        await may_go.wait()
    seen[owner] -= 1
    await plane.service.delete(owner, sandbox.id)


async def waiting(plane: World, owner: str = "alice") -> int:
    """How many of an owner's creates wait there."""
    return len(plane.service._core.create_queue.waiting(owner))


async def told(planes: tuple[World, World], owner: str, number: int) -> bool:
    """Whether each tells that so many of an owner's creates wait."""
    return all([(await plane.service.quota_use(owner)).waiting == number for plane in planes])


async def all_wait(planes: tuple[World, World], owner: str, number: int) -> bool:
    """Whether so many of an owner's creates wait."""
    return sum([await waiting(plane, owner) for plane in planes]) == number


async def test_a_crowd_at_both_passes_one_quota_and_none_is_forgotten(url: str) -> None:
    seen, most = Counter[str](), Counter[str]()
    async with planes(url, Options(starts_in_flight=64), alice=5) as (a, b):
        async with asyncio.TaskGroup() as group:
            for number in range(100):
                group.create_task(use((a, b)[number % 2], "alice", seen, most))
        assert most["alice"] <= 5
        assert await a.deps.store.usage("alice") == Usage()
        await until(lambda: told((a, b), "alice", 0), 120)


async def test_what_ends_at_one_lets_in_who_waits_at_the_other(url: str) -> None:
    async with planes(url, Options(), alice=1) as (a, b):
        first = (await a.create("alice", SPEC)).sandbox
        waits = asyncio.create_task(b.create("alice", SPEC))
        await until(lambda: waiting(b))
        await a.service.delete("alice", first.id)
        await waits


async def test_the_few_of_one_owner_are_not_behind_the_herd_of_another_in_a_full_installation(url: str) -> None:
    seen, most = Counter[str](), Counter[str]()
    async with planes(url, Options(starts_in_flight=64, max_sandboxes=8)) as (a, b):
        order, all_are_there = list[str](), asyncio.Event()

        async def turn(plane: World, owner: str) -> None:
            await use(plane, owner, seen, most, all_are_there)
            order.append(owner)

        async with asyncio.TaskGroup() as group:
            for number in range(120):
                group.create_task(turn((a, b)[number % 2], "alice"))
            await until(lambda: all_wait((a, b), "alice", 112), 120)
            for number in range(6):
                group.create_task(turn((a, b)[number % 2], "bob"))
            await until(lambda: all_wait((a, b), "bob", 6), 120)
            # A moment later each tells of both.
            await until(lambda: told((a, b), "bob", 6), 120)
            all_are_there.set()
        # In line behind the herd they would be the last.
        assert max(at for at, owner in enumerate(order) if owner == "bob") < 80
        assert await a.deps.store.usage(None) == Usage()


async def test_a_start_that_is_over_at_one_frees_a_start_at_the_other(url: str) -> None:
    async with planes(url, Options(starts_in_flight=64)) as (a, b):
        await a.service.quotas.change("alice", {"starting": 1})
        async with asyncio.TaskGroup() as group:
            created = [group.create_task((a, b)[number % 2].create("alice", SPEC)) for number in range(10)]
        assert len({one.result().sandbox.id for one in created}) == 10
        assert a.cluster.most_at_once == 1
