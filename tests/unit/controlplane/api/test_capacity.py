"""What operators see of the room on the nodes."""

import asyncio
from collections.abc import Collection, Mapping

import pytest

from controlplane.capacity import NodeRoom, Room
from controlplane.errors import Problem
from controlplane.lifecycle import Options
from controlplane.model import Sandbox, SandboxSpec, State
from controlplane.model.spec import MIB, Range
from tests.support.asgi import Caller
from tests.support.fake_cluster import FakeCluster
from tests.support.shared_store import SharedMemory
from tests.support.virtual_time import VirtualClock
from tests.support.world import OTHER_KEY, OWNER, SPEC, world

GIB = 1 << 30
LARGE = SandboxSpec(image="a", cpu_millicores=Range(request=900, limit=900))


async def test_operators_see_nodes_and_what_waits_of_all_owners() -> None:
    room = Room()
    room.set_node(NodeRoom("a", (1000, 2 * GIB, GIB, 0, 10)))
    room.set_node(NodeRoom("b", (1000, 2 * GIB, GIB, 0, 10), closed="is cordoned"))
    room.replace([("kube-system/x", "a", (350, 0, 0, 0, 1))])
    async with world(FakeCluster(room=room), options=Options(starts_in_flight=8, pending_pods=1)) as plane:
        await plane.create(OWNER, SPEC)
        waiting = [asyncio.create_task(plane.create("bob", LARGE)) for _ in range(2)]
        await asyncio.sleep(1)
        told = (await plane.api("GET", "/v1/capacity")).json
        a, b = told["nodes"]
        assert (a["name"], a["closed"], a["sandboxes"], a["pods"], a["fits"]) == ("a", "", 1, 2, 5)
        assert a["free"] == {
            "cpu_millicores": 550,
            "memory_bytes": 2 * GIB - 256 * MIB,
            "disk_bytes": GIB,
            "gpu": 0,
            "pods": 8,
        }
        assert (b["closed"], b["fits"], b["free"]["cpu_millicores"]) == ("is cordoned", 0, 1000)
        assert (told["known"], told["nodes_in_all"], told["fits"], told["sandboxes"]) == (True, 2, 5, 1)
        assert told["free"] == a["free"]  # what is closed is not free
        assert (told["waiting_in_all"], told["pending_pods"]) == (2, 1)
        pending, queued = told["waiting"]
        assert [one["owner"] for one in told["waiting"]] == ["bob", "bob"]
        assert (pending["pending"], queued["pending"]) == (True, False)
        assert "Insufficient cpu" in pending["why"]
        assert "node a has 0.55 cpu left; each needs 0.9 cpu" in queued["why"]
        for one in waiting:
            one.cancel()


async def test_what_waits_is_told_by_every_replica() -> None:
    core, room = SharedMemory(VirtualClock()), Room()
    room.set_node(NodeRoom("a", (1000, 2 * GIB, GIB, 0, 10)))
    room.replace([("kube-system/x", "a", (350, 0, 0, 0, 1))])
    cluster, options = FakeCluster(room=room), Options(starts_in_flight=8, pending_pods=1)
    async with (
        world(cluster, options=options, store=core.view("a")) as a,
        world(cluster, options=options, store=core.view("b")) as b,
    ):
        waiting = [asyncio.create_task(a.create("bob", LARGE)) for _ in range(2)]
        await asyncio.sleep(1)
        here, there = [(await one.api("GET", "/v1/capacity")).json for one in (a, b)]
        assert (here["waiting_in_all"], there["waiting_in_all"]) == (2, 2)
        assert {one["sandbox_id"] for one in here["waiting"]} == {one["sandbox_id"] for one in there["waiting"]}
        assert all(one["why"].endswith("; it waits at another control plane") for one in there["waiting"])
        assert sorted(one["why"].partition(":")[0] for one in there["waiting"]) == [
            "no node has room for it now",
            "no node takes it",
        ]
        # What fits is under way, and does not wait for room.
        small = asyncio.create_task(b.create(OWNER, SPEC))
        await asyncio.sleep(0.01)
        assert (await a.api("GET", "/v1/capacity")).json["waiting_in_all"] == 2
        await small
        for one in waiting:
            one.cancel()


async def test_a_start_that_is_over_while_the_store_is_asked_does_not_wait_elsewhere() -> None:
    room, store = Room(), SharedMemory(VirtualClock()).view("a")
    room.set_node(NodeRoom("a", (100, 2 * GIB, GIB, 0, 10)))
    room.replace(())
    find = store.find
    async with world(FakeCluster(room=room), options=Options(starts_in_flight=8), store=store) as plane:
        waiting = asyncio.create_task(plane.create("bob", LARGE))
        await asyncio.sleep(1)
        assert (await plane.api("GET", "/v1/capacity")).json["waiting_in_all"] == 1

        async def overtaken(owner: str | None, labels: Mapping[str, str], states: Collection[State]) -> list[Sandbox]:
            found = await find(owner, labels, states)
            for one in found:
                await plane.service.delete("bob", one.id)
            with pytest.raises(Problem):
                await waiting
            return [*found]

        store.find = overtaken  # type: ignore[assignment, method-assign]
        assert (await plane.api("GET", "/v1/capacity")).json["waiting_in_all"] == 0
        store.find = find  # type: ignore[method-assign]


async def test_others_may_not_see_it_and_an_engine_knows_nothing() -> None:
    async with world(FakeCluster()) as plane:
        refused = await Caller(plane.api.app, OTHER_KEY)("GET", "/v1/capacity")
        assert (refused.status, refused.code) == (403, "permission_denied")
        told = (await plane.api("GET", "/v1/capacity")).json
        assert (told["known"], told["nodes"], told["fits"], told["waiting"]) == (False, [], 0, [])
