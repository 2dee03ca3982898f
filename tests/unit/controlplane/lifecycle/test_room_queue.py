"""Starts that no node has room for wait, fairly and with a reason, and no pod is made of them before."""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import pytest

from controlplane.capacity import NodeRoom, Room
from controlplane.cluster import Placement
from controlplane.errors import Problem
from controlplane.lifecycle import Options
from controlplane.lifecycle.admission.candidates import candidate
from controlplane.lifecycle.record.transition import Transition
from controlplane.lifecycle.waiting.gates.room import RoomGate
from controlplane.lifecycle.waiting.pace import LOOK_AGAIN_S
from controlplane.lifecycle.waiting.pending import PROMISE_MS
from controlplane.lifecycle.waiting.room_lines import MOST_KINDS
from controlplane.lifecycle.waiting.standings import SLACK_MS
from controlplane.model import Overcommit, Sandbox, SandboxSpec, State
from controlplane.model.spec import Range
from controlplane.telemetry import Metrics
from tests.support.fake_cluster import FakeCluster, room_for
from tests.support.fake_node_images import FakeLazyNodes
from tests.support.virtual_time import VirtualClock
from tests.support.world import OWNER, SPEC, World, world

LARGE = SandboxSpec(image="a", cpu_millicores=Range(request=900, limit=900))
DEADLINE = SandboxSpec(image="a", start_timeout_ms=10_000)
MANY = Options(starts_in_flight=64)


async def unnoted(sandbox: Sandbox) -> None:
    """Nobody else is told that a start waits."""
    del sandbox


def of_cpu(**cores: float) -> Room:
    """Nodes with so much cpu, and enough of all else."""
    room = Room()
    for name, cpu in cores.items():
        room.set_node(NodeRoom(name, (round(cpu * 1000), 1 << 50, 1 << 50, 9, 999)))
    room.replace(())
    return room


async def counted(plane: World, metric: str, **labels: str) -> float:
    return plane.deps.metrics.registry.get_sample_value(metric, labels) or 0.0


async def test_what_fits_nowhere_waits_without_a_pod_and_starts_when_room_comes() -> None:
    cluster = FakeCluster(room=room_for(2))
    async with world(cluster, options=MANY) as plane:
        first, _ = await asyncio.gather(plane.create(OWNER, SPEC), plane.create(OWNER, SPEC))
        body = {**SPEC.model_dump(), "labels": {"sample": "7"}}
        creating = asyncio.create_task(plane.api("POST", "/v1/sandboxes", body=body, headers={"Idempotency-Key": "k"}))
        await asyncio.sleep(5)
        assert len(cluster.started) == 2
        (place,) = (await plane.api("GET", "/v1/quota")).json["queue"]
        why = (
            "no node has room for it now: node n1 has 0 places for pods left; each needs 1 places for pods; "
            "it is number 1 of 1 of alice that wait for such room"
        )
        assert (place["position"], place["waits_for"], place["why"]) == (1, "capacity_unavailable", why)
        assert (place["labels"], place["idempotency_key"]) == ({"sample": "7"}, "k")
        found = (await plane.api("GET", "/v1/sandboxes")).json["sandboxes"]
        (waiting,) = [one["id"] for one in found if one["state"] == "queued"]
        told = (await plane.api("GET", f"/v1/sandboxes/{waiting}/timeline")).json
        assert told["summary"] == f"It waits for room: capacity_unavailable: {why}."
        assert (await plane.service.levels()).starts_unplaced == 1
        await plane.service.delete(OWNER, first.sandbox.id)
        assert (await creating).status == 201
        assert (await plane.service.levels()).starts_unplaced == 0
        assert await counted(plane, "rollbox_create_wait_seconds_count", room="nodes", outcome="admitted") == 1


async def test_at_its_deadline_it_hears_what_the_nodes_have_left() -> None:
    async with world(FakeCluster(room=of_cpu(a=0.05, b=0.02)), options=MANY) as plane:
        began_ms = plane.deps.clock.now_ms()
        with pytest.raises(Problem) as refused:
            await plane.create(OWNER, DEADLINE)
        assert refused.value.code == "capacity_unavailable"
        assert refused.value.detail == (
            "no node has room for it within its start timeout of 10 s: node a has 0.05 cpu left, node b has 0.02 "
            "cpu left; each needs 0.1 cpu; it was number 1 of 1 of alice that waited for such room"
        )
        assert plane.deps.clock.now_ms() - began_ms <= 10_000
        assert plane.cluster.started == []
        assert (await plane.service.levels()).starts_unplaced == 0


async def test_small_ones_do_not_wait_behind_a_large_one() -> None:
    async with world(FakeCluster(room=of_cpu(a=0.95)), options=MANY) as plane:
        first = await plane.create(OWNER, SPEC)
        large = asyncio.create_task(plane.create(OWNER, LARGE))
        await asyncio.sleep(1)
        small = await asyncio.gather(*(plane.create(OWNER, SPEC) for _ in range(3)))
        for one in small:
            await plane.service.delete(OWNER, one.sandbox.id)
        await asyncio.sleep(5)
        assert not large.done()
        await plane.service.delete(OWNER, first.sandbox.id)
        await large


async def test_an_owner_with_few_does_not_wait_for_one_with_many() -> None:
    cluster = FakeCluster(room=room_for(4))
    async with world(cluster, options=MANY) as plane:
        first = await asyncio.gather(*(plane.create(OWNER, SPEC) for _ in range(4)))
        many = [asyncio.create_task(plane.create(OWNER, SPEC)) for _ in range(8)]
        await asyncio.sleep(1)
        few = [asyncio.create_task(plane.create("bob", SPEC)) for _ in range(2)]
        await asyncio.sleep(1)
        for made in first[:2]:
            await plane.service.delete(OWNER, made.sandbox.id)
        await asyncio.sleep(2)
        assert [one.done() for one in few] == [True, True]
        assert not any(one.done() for one in many)
        for one in (*many, *few):
            one.cancel()


async def test_a_herd_that_waits_for_its_slots_keeps_room_from_nobody() -> None:
    room = room_for(10)
    cluster = FakeCluster(room=room, start_s=1.0)
    async with world(cluster, options=Options(starts_in_flight=1)) as plane:
        herd = [asyncio.create_task(plane.create(OWNER, SPEC)) for _ in range(30)]
        await asyncio.sleep(1.5)
        assert sum(free.reserved[-1] for free in room.free()) <= 2
        later = asyncio.create_task(plane.create("bob", SPEC))
        await asyncio.sleep(4)
        assert later.done()
        assert len([one for one in herd if one.done()]) < 6
        await asyncio.sleep(20)
        assert len([one for one in herd if one.done()]) == 9
        # What had no room any more when its turn came waits for room again, in the order in which it came.
        places = (await plane.api("GET", "/v1/quota")).json["queue"]
        assert [place["position"] for place in places] == [*range(1, 22)]
        for one in herd:
            one.cancel()


async def test_a_lazy_start_waits_for_a_node_that_mounts_images_lazily() -> None:
    cluster = FakeCluster(room=room_for(0, able=1, other=5), lazy=FakeLazyNodes("lazy/", ("other",)))
    async with world(cluster, options=MANY) as plane:
        lazily = SandboxSpec(image="lazy/a")
        first = await plane.create(OWNER, lazily)
        waiting = asyncio.create_task(plane.create(OWNER, lazily))
        await asyncio.sleep(1)
        assert not waiting.done()
        # The same request without that passes it: it is another line.
        await plane.create(OWNER, SPEC)
        await plane.service.delete(OWNER, first.sandbox.id)
        await waiting


async def test_a_start_that_is_begun_anew_keeps_its_room() -> None:
    room = room_for(1)
    clock, queue = alone(room)
    sandbox = of("alice", clock)
    async with queue.turn(queue.ticket(sandbox, lazily=True)) as has_room:
        assert has_room()
        room.put(sandbox.id, "n1", (100, 0, 0, 0, 1))
        waiting = enter(queue, of("bob", clock))
        queue.again(sandbox.id)
        room.remove(sandbox.id)
        await asyncio.sleep(1)
        assert not waiting.done()
        room.put(sandbox.id, "n1", (100, 0, 0, 0, 1))
    room.remove(sandbox.id)
    await asyncio.sleep(1)
    assert waiting.done()


async def test_what_ends_while_it_waits_leaves_nothing() -> None:
    room = room_for(1)
    async with world(FakeCluster(room=room), options=MANY) as plane:
        await plane.create(OWNER, SPEC)
        waiting = await plane.request(OWNER, SPEC)
        await asyncio.sleep(1)
        await plane.service.delete(OWNER, waiting.id)
        await asyncio.sleep(1)
        assert (await plane.service.levels()).starts_unplaced == 0
        assert [(one.sandboxes, one.reserved[-1]) for one in room.free()] == [(1, 0)]


async def test_where_nodes_can_come_a_bounded_number_goes_to_the_scheduler() -> None:
    room = room_for(1)
    cluster = FakeCluster(room=room)
    async with world(cluster, options=replace(MANY, pending_pods=2)) as plane:
        creating = [asyncio.create_task(plane.create(OWNER, SPEC)) for _ in range(6)]
        await asyncio.sleep(5)
        assert len(cluster.started) == 3
        assert sum(not one.node for one in cluster.placed.values()) == 2
        assert await counted(plane, "rollbox_placement_disagreements_total", scheduler="refused") == 0
        # A node comes: the scheduler looks again at what it has, and what waits here goes on.
        room.set_node(NodeRoom("new", (1 << 50, 1 << 50, 1 << 50, 1 << 50, 9)))
        for sandbox_id in [one for one, placement in cluster.placed.items() if not placement.node]:
            cluster.reschedule(sandbox_id)
        await asyncio.gather(*creating)
        assert len(cluster.started) == 6


async def test_what_a_node_turns_away_starts_on_another_one() -> None:
    room = room_for(0, a=2, b=1)
    cluster = FakeCluster(room=room, turning_away=("a",))
    async with world(cluster, options=MANY) as plane:
        made = await plane.create(OWNER, SPEC)
        assert cluster.placed[made.sandbox.id].node == "b"
        assert cluster.undone == [made.sandbox.id]
        assert await counted(plane, "rollbox_placement_disagreements_total", scheduler="turned_away") == 1
        assert sum(free.reserved[-1] for free in room.free()) == 0


async def test_what_every_node_turns_away_ends_with_the_nodes_words() -> None:
    cluster = FakeCluster(room=room_for(0, a=2, b=2), turning_away=("a", "b"))
    async with world(cluster, options=MANY) as plane:
        with pytest.raises(Problem, match="3 nodes have turned it away, at last [ab]: OutOfcpu") as refused:
            await plane.create(OWNER, SPEC)
        assert refused.value.code == "capacity_unavailable"
        assert len(cluster.undone) == 2


class Contrary(FakeCluster):
    """A scheduler that sees a reason of its own against small sandboxes."""

    def _schedule(self, room: Room, sandbox_id: str, spec: SandboxSpec) -> bool:
        if spec.cpu_millicores.request < 500:
            self.place(sandbox_id, "", "0/1 nodes are available: 1 node(s) had no free ports.")
            return False
        return super()._schedule(room, sandbox_id, spec)


async def test_the_scheduler_is_right_and_what_it_refuses_is_not_sent_again_and_again() -> None:
    cluster = Contrary(room=of_cpu(a=4))
    async with world(cluster, options=MANY) as plane:
        creating = [asyncio.create_task(plane.create(OWNER, SPEC)) for _ in range(5)]
        await asyncio.sleep(2)
        sent = len(cluster.started)
        assert sent < 5 or await counted(plane, "rollbox_placement_disagreements_total", scheduler="refused") == 5
        later = asyncio.create_task(plane.create(OWNER, SPEC))
        await asyncio.sleep(5)
        assert len(cluster.started) == sent
        assert await counted(plane, "rollbox_placement_disagreements_total", scheduler="refused") == sent
        queue: list[dict[str, Any]] = (await plane.api("GET", "/v1/quota")).json["queue"]
        assert "the scheduler finds no node for sb-" in queue[-1]["why"]
        await plane.create(OWNER, LARGE)
        for one in (*creating, later):
            one.cancel()


async def test_without_knowledge_nothing_waits() -> None:
    unknown = Room()
    async with world(FakeCluster(room=unknown), options=MANY) as plane:
        creating = asyncio.create_task(plane.create(OWNER, DEADLINE))
        await asyncio.sleep(1)
        assert len(plane.cluster.started) == 1
        with pytest.raises(Problem, match="of 1 node 1 has too little cpu left"):
            await creating


async def test_when_it_is_not_known_any_more_what_is_free_the_scheduler_decides() -> None:
    room = room_for(1)
    cluster = FakeCluster(room=room)
    async with world(cluster, options=MANY) as plane:
        await plane.create(OWNER, SPEC)
        waiting = asyncio.create_task(plane.create(OWNER, SPEC))
        await asyncio.sleep(1)
        assert len(cluster.started) == 1
        room.forget()
        await asyncio.sleep(1)
        assert len(cluster.started) == 2
        waiting.cancel()


def starting(number: int, clock: VirtualClock) -> Sandbox:
    made = candidate("bob", SPEC, None, now_ms=clock.now_ms(), idle_timeout_ms=0, overcommit=Overcommit())
    return replace(made, id=f"sb-{number}", state=State.STARTING)


async def test_starts_of_other_replicas_need_room_too_until_they_are_over_or_forgotten() -> None:
    clock, room = VirtualClock(), room_for(3)
    queue = RoomGate(FakeCluster(room=room), clock, Metrics(), 0, unnoted)
    seen, ended, lost = (starting(number, clock) for number in range(3))
    for one in (seen, ended, lost):
        queue.on(Transition.of(None, one, here=False))
    assert room.fit((1, 0, 0, 0, 1), {}) == 0
    room.put(seen.id, "n1", (1, 0, 0, 0, 1))
    assert room.fit((1, 0, 0, 0, 1), {}) == 0
    queue.on(Transition.of(None, replace(ended, state=State.ENDED), here=False))
    assert room.fit((1, 0, 0, 0, 1), {}) == 1
    await asyncio.sleep(DEADLINE.start_timeout_ms + 300)
    queue.on(Transition.of(None, replace(ended, state=State.ENDED), here=False))
    assert room.fit((1, 0, 0, 0, 1), {}) == 2


async def test_another_replicas_start_is_forgotten_at_its_deadline_whatever_began_before_it() -> None:
    clock, room = VirtualClock(), room_for(2)
    queue = RoomGate(FakeCluster(room=room), clock, Metrics(), 0, unnoted)
    patient, short, third = (starting(number, clock) for number in range(3))
    patient = replace(patient, spec=patient.spec.model_copy(update={"start_timeout_ms": 3_600_000}))
    for one in (patient, short):
        queue.on(Transition.of(None, one, here=False))
    assert room.fit((1, 0, 0, 0, 1), {}) == 0
    await asyncio.sleep((short.start_by_ms - clock.now_ms() + SLACK_MS) / 1000 + 1)
    queue.on(Transition.of(None, replace(third, state=State.ENDED), here=False))
    assert room.fit((1, 0, 0, 0, 1), {}) == 1


async def test_who_lost_its_room_before_its_pod_was_made_waits_anew_at_its_old_place() -> None:
    clock, room = VirtualClock(), room_for(1)
    queue = RoomGate(FakeCluster(room=room), clock, Metrics(), 0, unnoted)
    sandbox = replace(starting(1, clock), state=State.QUEUED)
    async with queue.turn(queue.ticket(sandbox)) as has_room:
        assert has_room()
        room.put("default/x", "n1", (0, 0, 0, 0, 1))
        assert not has_room()
        room.remove("default/x")
        assert not has_room()
    assert room.fit((1, 0, 0, 0, 1), {}) == 1


async def test_a_refused_start_counts_once_and_is_right_again_when_it_is_placed() -> None:
    clock, room, metrics = VirtualClock(), room_for(2), Metrics()
    queue = RoomGate(FakeCluster(room=room), clock, metrics, 0, unnoted)
    one, alike = (replace(starting(number, clock), state=State.QUEUED) for number in range(2))
    async with queue.turn(queue.ticket(one)):
        for _ in range(2):
            queue.placed(Placement(one.id, "", "no"))
        waiting = asyncio.create_task(queue.turn(queue.ticket(alike)).__aenter__())
        await asyncio.sleep(1)
        assert (len(queue), waiting.done()) == (1, False)
        queue.placed(Placement(one.id, "n1"))
        await asyncio.sleep(1)
        assert (len(queue), waiting.done()) == (0, True)
    assert metrics.registry.get_sample_value("rollbox_placement_disagreements_total", {"scheduler": "refused"}) == 1


def alone(room: Room, most_pending: int = 0) -> tuple[VirtualClock, RoomGate]:
    clock = VirtualClock()
    return clock, RoomGate(FakeCluster(room=room), clock, Metrics(), most_pending, unnoted)


def of(owner: str, clock: VirtualClock, cpu: int = 100, state: State = State.QUEUED) -> Sandbox:
    spec = SandboxSpec(image="a", cpu_millicores=Range(request=cpu, limit=cpu))
    made = candidate(owner, spec, None, now_ms=clock.now_ms(), idle_timeout_ms=0, overcommit=Overcommit())
    return replace(made, state=state)


def enter(queue: RoomGate, sandbox: Sandbox) -> asyncio.Task[Any]:
    return asyncio.create_task(queue.turn(queue.ticket(sandbox)).__aenter__())


async def test_many_kinds_that_fit_nowhere_block_nobody() -> None:
    room = of_cpu(a=0.2)
    room.put("default/x", "a", (200, 0, 0, 0, 1))
    clock, queue = alone(room)
    large = [enter(queue, of("mallory", clock, 1000 + number)) for number in range(MOST_KINDS)]
    await asyncio.sleep(0.1)
    small = enter(queue, of("bob", clock))
    await asyncio.sleep(0.1)
    room.remove("default/x")
    await asyncio.sleep(0.1)
    assert small.done()
    assert not any(one.done() for one in large)
    for one in large:
        one.cancel()


async def test_of_two_replicas_that_reserve_the_last_place_one_gives_way() -> None:
    room = room_for(1)
    clock, queue = alone(room)
    async with queue.turn(queue.ticket(of("bob", clock))) as has_room:
        other = starting(1, clock)
        queue.on(Transition.of(None, other, here=False))
        assert not has_room()
    waiting = enter(queue, of("bob", clock))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    # The scheduler takes no other one's pod: what it refuses takes no room.
    queue.placed(Placement(other.id, "", "no"))
    await asyncio.sleep(0.1)
    assert waiting.done()


async def test_what_the_scheduler_refuses_another_replica_takes_no_room_here() -> None:
    room = room_for(1)
    clock, cluster = VirtualClock(), FakeCluster(room=room)
    queue = RoomGate(cluster, clock, Metrics(), 0, unnoted)
    other = starting(1, clock)
    cluster.place(other.id, "", "no")
    queue.on(Transition.of(None, other, here=False))
    async with queue.turn(queue.ticket(of("bob", clock))) as has_room:
        assert has_room()


async def test_a_start_that_is_taken_over_goes_on_without_room() -> None:
    room = room_for(1)
    clock, queue = alone(room)
    async with queue.turn(queue.ticket(of("bob", clock))) as first:
        assert first()
        taken_over = starting(1, clock)
        queue.on(Transition.of(None, taken_over, here=False))
        async with queue.turn(queue.ticket(taken_over)) as has_room:
            assert has_room()
            queue.placed(Placement(taken_over.id, "", "no"))
            assert has_room()
            assert first()
    assert room.fit((1, 0, 0, 0, 1), {}) == 1


async def test_room_that_nobody_tells_of_is_found_by_looking_again() -> None:
    room = room_for(1)
    clock, queue = alone(room)
    room.put("default/x", "n1", (0, 0, 0, 0, 1))
    waiting = enter(queue, of("bob", clock))
    await asyncio.sleep(5)
    room._more = lambda: None  # type: ignore[method-assign]
    room.remove("default/x")
    await asyncio.sleep(LOOK_AGAIN_S)
    assert waiting.done()


async def test_an_owner_whose_starts_are_pending_hides_nobody_from_the_autoscaler() -> None:
    clock, queue = alone(of_cpu(a=0.05), most_pending=2)
    async with AsyncExitStack() as kept:

        def comes(owner: str, cpu: int) -> asyncio.Task[Any]:
            turn = queue.turn(queue.ticket(of(owner, clock, cpu)))
            return asyncio.create_task(kept.enter_async_context(turn))

        herd = [comes("alice", 1000) for _ in range(5)]
        await asyncio.sleep(0.1)
        assert [one.done() for one in herd] == [True, True, False, False, False]
        others: list[asyncio.Task[Any]] = []
        for owner, cpu in (("bob", 1000), ("alice", 2000), ("bob", 3000), ("carol", 3000)):
            others.append(comes(owner, cpu))
            await asyncio.sleep(0.1)
        assert [one.done() for one in others] == [True, True, False, True]
        assert not any(one.done() for one in herd[2:])
        for one in (*herd, *others):
            one.cancel()


async def test_a_new_node_is_for_what_is_pending_first_but_not_for_ever() -> None:
    room = room_for(0)
    clock, queue = alone(room, most_pending=1)
    async with queue.turn(queue.ticket(of("alice", clock))) as has_room:
        assert has_room()
        waiting = enter(queue, of("alice", clock))
        await asyncio.sleep(1)
        room.set_node(NodeRoom("new", (1 << 50, 1 << 50, 1 << 50, 1 << 50, 1)))
        await asyncio.sleep(PROMISE_MS / 1000 - 1)
        assert not waiting.done()
        await asyncio.sleep(3)
        assert waiting.done()


async def test_a_start_that_never_begins_is_not_counted_as_one_that_its_owner_has() -> None:
    clock, queue = alone(room_for(1))
    sandbox = of("bob", clock)
    async with queue.turn(queue.ticket(sandbox)):
        assert queue._owned.of("bob") == 1
    assert queue._owned.of("bob") == 0
    async with queue.turn(queue.ticket(sandbox)):
        queue.on(Transition.of(None, replace(sandbox, state=State.STARTING), here=True))
    assert queue._owned.of("bob") == 1
