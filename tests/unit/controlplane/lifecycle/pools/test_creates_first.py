"""Two replicas, a pool that fills the nodes and more: a create starts as soon as warm ones have left, and always."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from controlplane.cluster.engine.documents import FileDocuments
from controlplane.errors import Problem
from controlplane.lifecycle import Options
from controlplane.model import SandboxSpec, State
from controlplane.model.pool import PoolSpec
from controlplane.model.spec import Range
from tests.support.crowded import Crowd
from tests.support.shared_store import SharedMemory
from tests.support.virtual_time import VirtualClock
from tests.support.world import OWNER, World, world

WARM = 100
# Up to twenty end, eight at a time; then a turn of yielding, the watch and the start of the create.
SOON_S = 3 * 2 + 2


def pool(wanted: int, cpu: int = WARM, image: str = "a") -> PoolSpec:
    template = {"image": image, "cpu_millicores": {"request": cpu, "limit": 1000}}
    body = {"template": template, "min_warm": wanted, "max_warm": wanted, "starts_per_minute": 600}
    return PoolSpec.model_validate(body)


def wish(cpu: int, timeout_ms: int = 40_000, node: str = "") -> SandboxSpec:
    amounts, selector = Range(request=cpu, limit=4000), {"node": node} if node else {}
    return SandboxSpec(image="other", cpu_millicores=amounts, start_timeout_ms=timeout_ms, node_selector=selector)


@asynccontextmanager
async def replicas(crowd: Crowd, pending_pods: int = 0) -> AsyncIterator[tuple[World, World]]:
    """Two control planes, each with its own view of the nodes."""
    documents, core = FileDocuments(), SharedMemory(VirtualClock())
    options = Options(starts_in_flight=16, pending_pods=pending_pods)
    async with (
        world(crowd.view(), options=options, store=core.view("a"), documents=documents) as a,
        world(crowd.view(), options=options, store=core.view("b"), documents=documents) as b,
    ):
        yield a, b
    await crowd.settle()


@pytest.mark.parametrize("pending_pods", [0, 64])
@pytest.mark.parametrize("cpu", [50, 100, 300, 1500, 2000])
async def test_warm_ones_keep_no_create_out_whatever_its_size_and_where_it_comes(cpu: int, pending_pods: int) -> None:
    crowd = Crowd(n1=2000)
    async with replicas(crowd, pending_pods) as (a, b):
        await a.service.pools.put("p", pool(30))
        await asyncio.sleep(60)
        assert sum(bool(pod.node) for pod in crowd.pods.values()) == 20
        # A pool makes no pod that fits nowhere, but for one that an autoscaler hears of.
        assert len(crowd.pending) == min(1, pending_pods)
        for plane in (a, b, a, b):
            began_s = asyncio.get_running_loop().time()
            made = await plane.create(OWNER, wish(cpu))
            assert asyncio.get_running_loop().time() - began_s < SOON_S
            assert crowd.pending == []
            await asyncio.sleep(1)
            if cpu > 400:
                await plane.service.delete(OWNER, made.sandbox.id)
                await asyncio.sleep(3)


async def test_a_burst_at_both_replicas_is_started_as_far_as_the_nodes_reach_and_the_rest_has_no_pods() -> None:
    crowd = Crowd(n1=1000, n2=1000)
    async with replicas(crowd) as (a, b):
        await a.service.pools.put("p", pool(30))
        await a.service.pools.put("q", pool(10, cpu=300, image="b"))
        await asyncio.sleep(60)
        creating = [asyncio.create_task(plane.create(OWNER, wish(200, 30_000))) for _ in range(10) for plane in (a, b)]
        await asyncio.sleep(25)
        assert crowd.pending == []
        assert sum(one.done() for one in creating) == 10
        left = [one for one in await asyncio.gather(*creating, return_exceptions=True) if isinstance(one, Problem)]
        assert [one.code for one in left] == ["capacity_unavailable"] * 10
        numbers = sorted(int(one.details["position"]) for one in left)
        assert (numbers, {one.details["waiting"] for one in left}) == ([*range(1, 11)], {"10"})


async def test_a_pool_that_waits_takes_nothing_from_a_create_that_waits_at_another_replica() -> None:
    crowd = Crowd(n1=1000)
    async with replicas(crowd) as (a, b):
        mine = [(await a.create(OWNER, wish(100))).sandbox for _ in range(10)]
        await a.service.pools.put("p", pool(10))
        await asyncio.sleep(5)
        other = a if b.service._core.pools.leads else b
        waiting = asyncio.create_task(other.create("bob", wish(200)))
        await asyncio.sleep(5)
        for one in mine[:2]:
            await a.service.delete(OWNER, one.id)
            await asyncio.sleep(3)
        assert (await waiting).sandbox.state is State.RUNNING
        assert [one for one in await a.deps.store.find(None, {}, {State.WARM}) if one.pool] == []


async def test_a_pool_on_other_nodes_does_not_stand_back() -> None:
    crowd = Crowd(n1=1000, n2=1000)
    async with replicas(crowd) as (a, b):
        for _ in range(10):
            await a.create(OWNER, wish(100, node="n1"))
        waiting = asyncio.create_task(b.create("bob", wish(100, node="n1")))
        await asyncio.sleep(5)
        template = {"image": "a", "cpu_millicores": {"request": WARM, "limit": 1000}, "node_selector": {"node": "n2"}}
        spec = {"template": template, "min_warm": 5, "max_warm": 5}
        await a.service.pools.put("p", PoolSpec.model_validate(spec))
        await asyncio.sleep(10)
        assert len(await a.deps.store.find(None, {}, {State.WARM})) == 5
        assert not waiting.done()
        waiting.cancel()


async def test_want_of_room_is_no_failure_of_a_pool_and_it_fills_up_again_when_there_is_some() -> None:
    crowd = Crowd(n1=1000)
    async with replicas(crowd) as (a, b):
        mine = [(await b.create(OWNER, wish(100))).sandbox for _ in range(10)]
        await a.service.pools.put("p", pool(2))
        await asyncio.sleep(600)
        for one in mine[:2]:
            await b.service.delete(OWNER, one.id)
        await asyncio.sleep(40)
        assert len(await a.deps.store.find(None, {}, {State.WARM})) == 2
