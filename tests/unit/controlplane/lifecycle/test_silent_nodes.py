"""A node whose kubelet is silent: its sandboxes end soon if none of them answers anybody, and not before."""

import asyncio

import pytest

from controlplane.errors import Problem
from controlplane.lifecycle import Options
from tests.support.fake_cluster import FakeCluster
from tests.support.world import OWNER, SPEC, World, world

# Two rounds of three seconds from here and through a gateway, and the pauses between them.
SOON_S = 20


async def ends(plane: World) -> dict[str, str]:
    found = (await plane.api("GET", "/v1/sandboxes", query={"all": "true"})).json["sandboxes"]
    return {one["id"]: one["end"]["cause"] if one["end"] else "" for one in found}


def cut_off(plane: World, *ids: str) -> None:
    plane.sidecars.dead |= {plane.cluster._address(one) for one in ids}
    plane.gateways.unreached |= {*ids}


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster(starts_per_node=0)


async def test_what_answers_nobody_on_a_silent_node_ends_and_nothing_else(cluster: FakeCluster) -> None:
    async with world(cluster) as plane:
        here, *there = [(await plane.create(OWNER, SPEC)).sandbox.id for _ in range(4)]
        cluster.nodes.update(dict.fromkeys(there, "n2"))
        cluster.node_drains.quiet.add("n2")
        cut_off(plane, here, *there)
        await asyncio.sleep(SOON_S)
        assert await ends(plane) == {here: "", **dict.fromkeys(there, "node_lost")}
        told = (await plane.api("GET", f"/v1/sandboxes/{there[0]}")).json["end"]
        assert told["by"] == cluster.describe().backend


@pytest.mark.parametrize("way", ["sidecars", "gateways", "unknown"])
async def test_while_one_answers_or_nobody_can_tell_none_ends(cluster: FakeCluster, way: str) -> None:
    async with world(cluster) as plane:
        some = [(await plane.create(OWNER, SPEC)).sandbox.id for _ in range(3)]
        cluster.node_drains.quiet.add("n1")
        cut_off(plane, *some)
        if way == "sidecars":
            plane.sidecars.dead.discard(cluster._address(some[0]))
        elif way == "gateways":
            plane.gateways.unreached.discard(some[0])
        else:
            plane.gateways.away = True
        await asyncio.sleep(120)
        assert set((await ends(plane)).values()) == {""}


async def test_a_node_that_speaks_again_in_between_has_all_its_time_again(cluster: FakeCluster) -> None:
    async with world(cluster) as plane:
        sandbox = (await plane.create(OWNER, SPEC)).sandbox.id
        cut_off(plane, sandbox)
        for _ in range(20):
            cluster.node_drains.quiet.add("n1")
            await asyncio.sleep(2.5)
            cluster.node_drains.quiet.clear()
            await asyncio.sleep(2.5)
        assert await ends(plane) == {sandbox: ""}


async def test_a_start_there_ends_soon_and_a_pool_starts_another_one_elsewhere(cluster: FakeCluster) -> None:
    cluster.ready_s = None
    async with world(cluster) as plane:
        creating = asyncio.create_task(plane.create(OWNER, SPEC))
        await asyncio.sleep(1)
        cluster.node_drains.quiet.add("n1")
        with pytest.raises(Problem) as lost:
            async with asyncio.timeout(SOON_S):
                await creating
        assert lost.value.code == "node_lost"
    cluster = FakeCluster()
    async with world(cluster, options=Options(starts_in_flight=8)) as plane:
        await plane.api("PUT", "/v1/pools/p", body={"template": {"image": "a"}, "min_warm": 2, "max_warm": 2})
        await asyncio.sleep(5)
        warm = [*cluster.held]
        cluster.nodes.update(dict.fromkeys(warm, "n2"))
        cluster.node_drains.quiet.add("n2")
        cut_off(plane, *warm)
        await asyncio.sleep(SOON_S)
        assert len([one for one in cluster.held if one not in warm]) == 2
