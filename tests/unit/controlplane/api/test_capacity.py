"""What operators see of the room on the nodes."""

import asyncio

from controlplane.capacity import NodeRoom, Room
from controlplane.lifecycle import Options
from controlplane.model import SandboxSpec
from controlplane.model.base import MIB
from controlplane.model.spec import Range
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
        told["waiting"].sort(key=lambda one: not one["pending"])
        pending, queued = told["waiting"]
        assert [one["owner"] for one in told["waiting"]] == ["bob", "bob"]
        assert (pending["pending"], queued["pending"]) == (True, False)
        left = "node a has 0.55 cpu left; each needs 0.9 cpu"
        assert sorted(one["why"] for one in (pending, queued)) == [
            f"no node has room for it now: {left}; it is number {number} of 2 of bob that wait for such room"
            for number in (1, 2)
        ]
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
        assert [one["sandbox_id"] for one in here["waiting"]] == [one["sandbox_id"] for one in there["waiting"]]
        assert [one["why"] for one in here["waiting"]] == [one["why"] for one in there["waiting"]]
        assert sorted(one["pending"] for one in there["waiting"]) == [False, True]
        # Of both replicas' together each has its own number, and every replica says so to its owner.
        later = asyncio.create_task(b.create("bob", LARGE))
        await asyncio.sleep(1)
        for plane in (a, b):
            bobs = (await Caller(plane.api.app, OTHER_KEY)("GET", "/v1/quota")).json
            assert [place["position"] for place in bobs["queue"]] == [1, 2, 3]
            assert bobs["waiting"] == 3
            assert [f"it is number {number} of 3 of bob" in bobs["queue"][number - 1]["why"] for number in (1, 2, 3)]
        waiting.append(later)
        # What fits is under way, and does not wait for room.
        small = asyncio.create_task(b.create(OWNER, SPEC))
        await asyncio.sleep(0.01)
        assert (await a.api("GET", "/v1/capacity")).json["waiting_in_all"] == 3
        await small
        for one in waiting:
            one.cancel()


async def test_others_may_not_see_it_and_an_engine_knows_nothing() -> None:
    async with world(FakeCluster()) as plane:
        refused = await Caller(plane.api.app, OTHER_KEY)("GET", "/v1/capacity")
        assert (refused.status, refused.code) == (403, "permission_denied")
        told = (await plane.api("GET", "/v1/capacity")).json
        assert (told["known"], told["nodes"], told["fits"], told["waiting"]) == (False, [], 0, [])
