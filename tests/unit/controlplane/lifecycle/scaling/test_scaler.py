"""The scaler in a whole control plane: herds bring nodes, idle nodes go, and no provider holds up another."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from controlplane.capacity import Room
from controlplane.clock import Clock, SystemClock
from controlplane.errors import Problem
from controlplane.lifecycle import Options
from controlplane.lifecycle.scaling import read_report
from controlplane.model import SandboxSpec
from controlplane.model.spec import Range
from controlplane.scaling import NodePool, ScalingOptions
from tests.support.fake_cluster import FakeCluster
from tests.support.fake_node_pools import FakeNodePools
from tests.support.shared_store import SharedMemory
from tests.support.virtual_time import EPOCH_MS, VirtualClock
from tests.support.world import OWNER, World, world

GIB = 1 << 30
SIZE = (2_000, 8 * GIB, 100 * GIB, 0, 20)
SPEC = SandboxSpec(image="python:3.12", cpu_millicores=Range(request=1_000, limit=1_000), start_timeout_ms=600_000)


def pool(name: str = "a", price: float = 1.0, most: int = 5, least: int = 0) -> NodePool:
    return NodePool(name, "grpc", name, SIZE, least, most, {"pool": name}, price)


def scaled(*pools: NodePool, dry_run: bool = False, headroom: int = 0) -> Options:
    scaling = ScalingOptions(pools or (pool(),), 60_000, headroom, dry_run)
    return Options(starts_in_flight=64, scaling=scaling)


@asynccontextmanager
async def plane(
    options: Options, clock: Clock | None = None, **provider: object
) -> AsyncIterator[tuple[World, FakeNodePools]]:
    room = Room()
    room.replace(())
    cluster = FakeCluster(room=room)
    pools = FakeNodePools(cluster, **provider)  # type: ignore[arg-type]
    async with world(cluster, options=options, clock=clock, node_pools=pools) as made:
        yield made, pools


async def test_a_herd_brings_its_nodes_and_they_go_when_it_is_over() -> None:
    async with plane(scaled()) as (made, pools):
        herd = [asyncio.create_task(made.create(OWNER, SPEC)) for _ in range(6)]
        await asyncio.sleep(10)
        assert pools.calls == ["a 3"]
        told = (await made.api("GET", "/v1/capacity")).json["scaling"]
        assert (told["dry_run"], told["unplaced_in_all"]) == (False, 0)
        (line,) = told["node_pools"]
        assert (line["name"], line["min"], line["max"], line["coming"], line["wanted"]) == ("a", 0, 5, 3, 3)
        created = await asyncio.gather(*herd)
        assert made.deps.clock.now_ms() / 1000 > 60
        for one in created:
            assert (await made.api("DELETE", f"/v1/sandboxes/{one.sandbox.id}")).status < 300
        await asyncio.sleep(600)
        assert not pools.machines
        assert sum(call.startswith("cordon") for call in pools.calls) == 3
        assert 'rollbox_scaler_steps_total{node_pool="a",step="remove"} 3.0' in (await metrics(made))


class Watch:
    """A machine's wall clock that somebody sets, beside the loop's time, which nobody can."""

    def __init__(self) -> None:
        self.set_by_s = 0

    def clock(self) -> SystemClock:
        return SystemClock(lambda: EPOCH_MS * 1_000_000 + self.steady_ns() + self.set_by_s * 10**9, self.steady_ns)

    def steady_ns(self) -> int:
        return int(asyncio.get_running_loop().time() * 1e9)


@pytest.mark.parametrize("set_by_s", [6 * 3600, -6 * 3600])
async def test_a_machine_whose_clock_is_set_gives_up_no_node_and_removes_none_early(set_by_s: int) -> None:
    watch = Watch()
    async with plane(scaled(), clock=watch.clock()) as (made, pools):
        herd = [asyncio.create_task(made.create(OWNER, SPEC)) for _ in range(6)]
        await asyncio.sleep(10)
        watch.set_by_s = set_by_s
        await asyncio.sleep(20)
        told = (await made.api("GET", "/v1/capacity")).json["scaling"]
        assert (pools.calls, told["node_pools"][0]["paused_until_ms"]) == (["a 3"], None)
        created = await asyncio.gather(*herd)
        watch.set_by_s = 0
        await asyncio.sleep(300)
        assert pools.calls == ["a 3"], "all of its nodes are in use"
        for one in created:
            assert (await made.api("DELETE", f"/v1/sandboxes/{one.sandbox.id}")).status < 300
        await asyncio.sleep(10)
        watch.set_by_s = set_by_s
        await asyncio.sleep(40)
        assert pools.calls == ["a 3"], "nothing has needed them for less than a minute"
        await asyncio.sleep(600)
        assert not pools.machines


async def metrics(made: World) -> str:
    text, _ = made.deps.metrics.render(await made.service.levels())
    return text.decode()


async def test_what_no_node_may_hold_is_told_with_its_reason() -> None:
    async with plane(scaled(pool(most=1))) as (made, _):
        herd = [asyncio.create_task(made.create(OWNER, SPEC)) for _ in range(3)]
        await asyncio.sleep(80)
        told = (await made.api("GET", "/v1/capacity")).json["scaling"]
        (left,) = told["unplaced"]
        assert (left["count"], left["need"], left["why"]) == (1, "waiting", "a has its maximum of 1 nodes")
        text = await metrics(made)
        assert "rollbox_scaler_unplaced 1.0" in text
        assert 'rollbox_node_pool_nodes{node_pool="a",what="ready"} 1.0' in text
        for one in herd:
            one.cancel()


async def test_a_dry_run_tells_and_does_nothing() -> None:
    async with plane(scaled(dry_run=True)) as (made, pools):
        herd = [asyncio.create_task(made.create(OWNER, SPEC)) for _ in range(4)]
        await asyncio.sleep(30)
        told = (await made.api("GET", "/v1/capacity")).json["scaling"]
        assert (told["dry_run"], told["steps"]) == (True, ["a: asks for 2 nodes: 2 more for 4 that wait"])
        assert not pools.calls
        for one in herd:
            one.cancel()


async def test_a_provider_that_hangs_holds_up_no_other_pool() -> None:
    async with plane(scaled(pool("a"), pool("b", price=9)), hangs={"a"}) as (made, pools):
        created = asyncio.create_task(made.create(OWNER, SPEC))
        await asyncio.sleep(15)
        assert pools.calls == ["b 1"]
        told = (await made.api("GET", "/v1/capacity")).json["scaling"]["node_pools"][0]
        assert told["why"] == "cannot be asked: its provider has not answered yet"
        await asyncio.sleep(10)
        assert 'rollbox_scaler_failures_total{cause="upstream_timeout",node_pool="a"} 1.0' in await metrics(made)
        await created


async def test_a_provider_without_stock_pauses_and_another_pool_is_asked() -> None:
    async with plane(scaled(pool("a"), pool("b", price=9))) as (made, pools):
        asks, pools.ask = pools.ask, None  # type: ignore[assignment, method-assign]

        async def ask(of: NodePool, *more: object) -> None:
            if of.name == "a":
                raise Problem("capacity_unavailable", "no stock of this type")
            await asks(of, *more)  # type: ignore[arg-type]

        pools.ask = ask  # type: ignore[assignment, method-assign]
        created = asyncio.create_task(made.create(OWNER, SPEC))
        await asyncio.sleep(15)
        assert pools.calls == ["b 1"]
        told = (await made.api("GET", "/v1/capacity")).json["scaling"]["node_pools"][0]
        assert "pauses: no stock of this type" in told["why"]
        await created


async def test_headroom_and_pools_have_their_nodes_before_anybody_waits() -> None:
    async with plane(scaled(headroom=1)) as (made, pools):
        cores = {"request": 1_000, "limit": 1_000}
        body = {"template": {"image": "python:3.12", "cpu_millicores": cores}, "min_warm": 3, "max_warm": 3}
        assert (await made.api("PUT", "/v1/pools/p", body=body)).status == 201
        await asyncio.sleep(10)
        assert pools.calls[-1] == "a 2"
        await asyncio.sleep(120)
        assert len(pools.machines) == 2
        assert (await made.api("GET", "/v1/pools/p")).json["status"]["ready"] == 3


async def test_of_two_replicas_one_scales_and_both_tell_of_it() -> None:
    core, room = SharedMemory(VirtualClock()), Room()
    room.replace(())
    cluster = FakeCluster(room=room, annotates_behind=True)
    first, second = FakeNodePools(cluster), FakeNodePools(cluster)
    async with world(cluster, options=scaled(), store=core.view("a"), node_pools=first) as a:
        await asyncio.sleep(1)
        async with world(cluster, options=scaled(), store=core.view("b"), node_pools=second) as b:
            # What waits at the one that does not scale is seen too.
            created = asyncio.create_task(b.create(OWNER, SPEC))
            await asyncio.sleep(15)
            assert (first.calls, second.calls) == (["a 1"], [])
            for replica in (a, b):
                told = await replica.service.scaling()
                assert told is not None
                assert [one.name for one in told.pools] == ["a"]
            await created


async def test_a_preflight_tells_which_nodes_may_come() -> None:
    async def asked(made: World, count: int) -> dict[str, Any]:
        wish = {"sandbox": SPEC.model_dump(mode="json", exclude_defaults=True), "count": count}
        told: dict[str, Any] = (await made.api("POST", "/v1/preflight", body=wish)).json
        return told

    async with plane(scaled(pool(most=3), pool("b", price=9, most=1), pool("zone", most=9))) as (made, _):
        await asyncio.sleep(6)
        told = await asked(made, 4)
        assert [(one["pool"], one["nodes"], one["sandboxes"]) for one in told["nodes_may_come"]] == [
            ("a", 3, 6),
            ("b", 1, 2),
            ("zone", 9, 18),
        ]
        assert (told["fits"], told["may_have"], told["may_have_alone"]) == (False, 0, 4)
        (blocker,) = told["blockers"]
        assert not blocker["for_good"]
        assert "node pool a may bring 3 nodes with room for 6" in blocker["detail"]
        assert (await asked(made, 27))["blockers"][0]["for_good"]
        # What has come is what fits now, and no longer what may come.
        await made.create(OWNER, SPEC)
        told = await asked(made, 4)
        assert (told["may_have"], told["nodes_may_come"][0]["nodes"]) == (1, 2)
    async with plane(scaled(pool(), dry_run=True)) as (made, _):
        await asyncio.sleep(6)
        told = await asked(made, 4)
        assert (told["nodes_may_come"], told["blockers"][0]["for_good"]) == ([], True)


def test_a_report_of_another_version_is_none() -> None:
    assert read_report("") is None
    assert read_report('{"at_ms": 1}') is None
    assert read_report('{"at_ms": 1, "dry_run": true, "pools": [{"new": 1}], "unplaced": []}') is None
