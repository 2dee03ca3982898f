"""A node whose kubelet is silent: its sandboxes end soon if none of them answers anybody, and not before."""

import asyncio
from collections import Counter

import pytest

from controlplane.cluster.kubernetes.nodes.node_leases import SILENT_S
from controlplane.cluster.protocol import Health
from controlplane.lifecycle import Options
from controlplane.lifecycle.health.silent_nodes import ANSWERS_WITHIN_S, LOOK_EVERY_S, TRIED, TRIED_FOR_S
from controlplane.lifecycle.record.recovering_store import RecoveringStore
from controlplane.model import Sandbox
from tests.support.fake_cluster import FakeCluster, FakeSidecars
from tests.support.world import OWNER, SPEC, World, world

# The rounds in which a node is tried, and the pauses between them.
SOON_S = TRIED_FOR_S + LOOK_EVERY_S + ANSWERS_WITHIN_S + LOOK_EVERY_S
# How old the last renewal of a node may be that is about to renew its lease.
RENEWAL_S = 10


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


class Hanging(FakeSidecars):
    """What does not answer says nothing at all, as on a machine that stands still."""

    async def health(self, address: str, token: str) -> Health:
        if address in self.dead:
            await asyncio.Event().wait()
        return await super().health(address, token)


@pytest.mark.parametrize("age_s", [0.1, 5, RENEWAL_S])
@pytest.mark.parametrize("offset_s", [0, 0.7, 1.9])
@pytest.mark.parametrize("hangs", [False, True])
async def test_a_machine_that_stands_still_for_half_a_minute_loses_nothing(
    cluster: FakeCluster, age_s: float, offset_s: float, *, hangs: bool
) -> None:
    async with world(cluster, Hanging() if hangs else FakeSidecars()) as plane:
        some = [(await plane.create(OWNER, SPEC)).sandbox.id for _ in range(3)]
        await asyncio.sleep(offset_s)
        cut_off(plane, *some)
        await asyncio.sleep(SILENT_S - age_s)
        cluster.node_drains.quiet.add("n1")
        await asyncio.sleep(30 - (SILENT_S - age_s))
        plane.sidecars.dead.clear()
        plane.gateways.unreached.clear()
        # Not even a renewal is heard of.
        await asyncio.sleep(60)
        assert set((await ends(plane)).values()) == {""}


async def test_a_renewal_stops_the_tries_although_nothing_answers_yet(cluster: FakeCluster) -> None:
    async with world(cluster, Hanging()) as plane:
        sandbox = (await plane.create(OWNER, SPEC)).sandbox.id
        cut_off(plane, sandbox)
        cluster.node_drains.quiet.add("n1")
        # In the middle of the last round.
        await asyncio.sleep(LOOK_EVERY_S + TRIED_FOR_S + ANSWERS_WITHIN_S / 2)
        cluster.node_drains.quiet.clear()
        await asyncio.sleep(60)
        assert await ends(plane) == {sandbox: ""}


async def test_several_nodes_are_tried_side_by_side(cluster: FakeCluster) -> None:
    async with world(cluster, Hanging()) as plane:
        some = [(await plane.create(OWNER, SPEC)).sandbox.id for _ in range(9)]
        cluster.nodes.update({one: f"n{number}" for number, one in enumerate(some[1:], 2)})
        cluster.node_drains.known |= dict.fromkeys(cluster.nodes.values())
        cluster.node_drains.quiet |= {*cluster.nodes.values()}
        cut_off(plane, *some[1:])
        await asyncio.sleep(SOON_S)
        assert await ends(plane) == {some[0]: "", **dict.fromkeys(some[1:], "node_lost")}


async def test_no_more_records_are_read_than_are_tried_until_the_node_is_gone(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, peek = Counter[str](), RecoveringStore.peek

    async def counted(store: RecoveringStore, sandbox_id: str) -> Sandbox | None:
        read[sandbox_id] += 1
        return await peek(store, sandbox_id)

    async with world(cluster) as plane:
        some = [(await plane.create(OWNER, SPEC)).sandbox.id for _ in range(3 * TRIED)]
        cluster.node_drains.quiet.add("n1")
        cut_off(plane, *some)
        monkeypatch.setattr(RecoveringStore, "peek", counted)
        await asyncio.sleep(TRIED_FOR_S)
        assert len(read) == TRIED
        monkeypatch.undo()
        await asyncio.sleep(SOON_S)
        assert await ends(plane) == dict.fromkeys(some, "node_lost")


async def test_where_nothing_can_be_tried_yet_the_cluster_says_that_the_node_is_gone(cluster: FakeCluster) -> None:
    cluster.ready_s = None
    async with world(cluster) as plane:
        creating = asyncio.create_task(plane.create(OWNER, SPEC))
        await asyncio.sleep(1)
        cluster.node_drains.quiet.add("n1")
        await asyncio.sleep(90)
        assert not creating.done()
        await plane.cluster.get_ready(next(iter(cluster.held)))
        assert (await creating).sandbox.end is None


async def test_a_pool_starts_others_in_the_place_of_those_that_are_gone() -> None:
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
