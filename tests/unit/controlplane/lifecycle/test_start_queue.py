"""The start queue between owners; that starts are bounded and in order is tested with the service."""

import asyncio
from dataclasses import replace
from itertools import count

from controlplane.capacity import NOTHING
from controlplane.cluster import Placement
from controlplane.lifecycle.record.transition import Transition
from controlplane.lifecycle.waiting.gates.slot import SlotGate
from controlplane.lifecycle.waiting.ticket import Ticket
from controlplane.model import Sandbox, State
from controlplane.store import Slot
from controlplane.store.slots import Slots
from tests.support.fake_cluster import FakeCluster
from tests.support.virtual_time import VirtualClock
from tests.support.world import SPEC

NUMBERS = count()


class Store:
    """The store's part, a millisecond away; `held`: placement keys that a full node holds, whoever asks."""

    shared = False

    def __init__(self) -> None:
        self.slots = Slots()
        self.taken: set[str] = set()
        self.held: set[str] = set()
        self.asked: list[str] = []
        self.freed: list[str] = []

    async def take_slot(
        self, sandbox_id: str, limit: int, until_ms: int, per_node: int = 0, key: str = "", *, more: bool = False
    ) -> Slot:
        await asyncio.sleep(0.001)
        self.asked.append(sandbox_id)
        if key in self.held:
            return Slot(taken=False, held_by="n1")
        slot = self.slots.take(sandbox_id, limit, until_ms, 0, per_node=per_node, placement_key=key, more=more)
        self.taken |= {sandbox_id} if slot else set()
        return slot

    async def place_slot(self, sandbox_id: str, node: str, until_ms: int, per_node: int, key: str) -> None:
        self.taken.add(sandbox_id)
        self.slots.place(sandbox_id, node, until_ms, 0, per_node=per_node, placement_key=key)

    async def free_slot(self, sandbox_id: str) -> None:
        self.freed.append(sandbox_id)
        self.taken.discard(sandbox_id)
        self.slots.free(sandbox_id)


def sandbox(owner: str, number: int) -> Sandbox:
    now_ms = VirtualClock().now_ms()
    return replace(Sandbox(f"{owner}-{number}", owner, SPEC, now_ms, now_ms, "f"))


async def start(turns: SlotGate, one: Sandbox, began: list[str]) -> None:
    async with turns.turn(Ticket(one, NOTHING, next(NUMBERS))):
        began.append(one.owner)
        await asyncio.sleep(1)


async def test_the_few_of_one_owner_do_not_wait_for_the_herd_of_another() -> None:
    turns, began = SlotGate(Store(), FakeCluster(), at_most=4), list[str]()  # type: ignore[arg-type]
    async with asyncio.TaskGroup() as group:
        for number in range(200):
            group.create_task(start(turns, sandbox("alice", number), began))
        await asyncio.sleep(0.5)
        for number in range(5):
            group.create_task(start(turns, sandbox("bob", number), began))
    assert len(began) == 205
    # Two of four slots each, but for the fourth turns; alice's next one was at the head already.
    assert began[:20].count("bob") == 5
    assert (turns.taken, turns.waiting) == (0, 0)


async def test_a_start_that_was_begun_elsewhere_does_not_wait_behind_one_that_waits_for_its_slot() -> None:
    store, began = Store(), list[str]()
    turns = SlotGate(store, FakeCluster(), at_most=1)  # type: ignore[arg-type]
    begun = replace(sandbox("bob", 0), state=State.STARTING)
    await store.take_slot(begun.id, 1, 1 << 52, 0, "")
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        group.create_task(start(turns, sandbox("alice", 0), began))
        await asyncio.sleep(0.5)
        group.create_task(start(turns, begun, began))
    assert began == ["bob", "alice"]
    assert (turns.taken, turns.waiting, store.taken) == (0, 0, set())


async def test_who_is_cancelled_in_the_moment_of_his_turn_passes_it_on() -> None:
    turns, began = SlotGate(Store(), FakeCluster(), at_most=1), list[str]()  # type: ignore[arg-type]
    tasks = [asyncio.create_task(start(turns, sandbox("alice", number), began)) for number in range(4)]
    await asyncio.sleep(0.5)
    # The second one is at the head and waits for a slot, the third one is in line.
    tasks[0].cancel()
    tasks[1].cancel()
    tasks[2].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert began == ["alice", "alice"]
    assert (turns.taken, turns.waiting) == (0, 0)


async def hold(turns: SlotGate, one: Sandbox, began: list[str], over: asyncio.Event) -> None:
    async with turns.turn(Ticket(one, NOTHING, next(NUMBERS))):
        began.append(one.id)
        await over.wait()


def over(turns: SlotGate, store: Store, one: Sandbox) -> None:
    """Its record says that its start is over, which frees its slot in the same step of the store."""
    store.taken.discard(one.id)
    store.slots.free(one.id)
    turns.on(Transition.of(None, replace(one, state=State.RUNNING), here=True))


async def test_a_start_whose_record_has_freed_its_slot_does_not_free_it_again() -> None:
    store, began, done = Store(), list[str](), asyncio.Event()
    turns = SlotGate(store, FakeCluster(), at_most=1)  # type: ignore[arg-type]
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        for number in range(2):
            group.create_task(hold(turns, sandbox("alice", number), began, done))
        await asyncio.sleep(0.5)
        assert (began, turns.taken) == (["alice-0"], 1)
        over(turns, store, sandbox("alice", 0))
        await asyncio.sleep(0.01)
        assert (began, turns.taken, store.taken) == (["alice-0", "alice-1"], 1, {"alice-1"})
        done.set()
    assert (turns.taken, store.taken, store.freed) == (0, set(), ["alice-1"])


async def test_a_start_that_is_over_while_it_asks_frees_what_it_gets() -> None:
    store, began, done = Store(), list[str](), asyncio.Event()
    turns = SlotGate(store, FakeCluster(), at_most=1)  # type: ignore[arg-type]
    begun = replace(sandbox("alice", 0), state=State.STARTING)
    task = asyncio.create_task(hold(turns, begun, began, done))
    await asyncio.sleep(0)  # its question is on its way to the store
    over(turns, store, begun)
    done.set()
    await task
    assert (turns.taken, store.asked, store.freed, store.taken) == (0, ["alice-0"], ["alice-0"], set())


async def test_what_no_node_takes_has_no_slot_and_what_fits_goes_past_it() -> None:
    store, began, over = Store(), list[str](), asyncio.Event()
    turns = SlotGate(store, FakeCluster(), at_most=2)  # type: ignore[arg-type]
    async with asyncio.TaskGroup() as group:
        for number in range(4):
            group.create_task(hold(turns, sandbox("alice", number), began, over))
        await asyncio.sleep(0.5)
        assert began == ["alice-0", "alice-1"]
        for name in ("alice-0", "alice-1"):
            await turns.placed(Placement(name, "", "0/1 nodes are available: 1 Insufficient cpu."))
        await asyncio.sleep(0.5)
        assert began == ["alice-0", "alice-1", "alice-2", "alice-3"]
        assert store.taken == {"alice-2", "alice-3"}
        assert [one.sandbox.id for one in turns.refused] == ["alice-0", "alice-1"]
        # A node has come: it counts from now on, although all slots are taken.
        await turns.placed(Placement("alice-0", "n1"))
        assert store.taken == {"alice-0", "alice-2", "alice-3"}
        assert (turns.taken, [one.sandbox.id for one in turns.refused]) == (3, ["alice-1"])
        group.create_task(hold(turns, sandbox("bob", 0), began, over))
        await turns.placed(Placement("alice-1", "n1"))
        await turns.placed(Placement("alice-2", "", "none"))
        await asyncio.sleep(0.5)
        assert "bob-0" not in began
        over.set()
    assert (turns.taken, turns.waiting, store.taken, len(began)) == (0, 0, set(), 5)


async def test_one_that_is_taken_on_is_judged_by_where_its_pod_is() -> None:
    store, began, over, cluster = Store(), list[str](), asyncio.Event(), FakeCluster()
    turns = SlotGate(store, cluster, at_most=1)  # type: ignore[arg-type]
    cluster.place("bob-0", "n1")
    cluster.place("bob-1", "", "no room")
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        group.create_task(hold(turns, sandbox("alice", 0), began, over))
        await asyncio.sleep(0.5)
        for number in range(2):
            group.create_task(hold(turns, replace(sandbox("bob", number), state=State.STARTING), began, over))
        await asyncio.sleep(0.5)
        assert sorted(began) == ["alice-0", "bob-0", "bob-1"]
        assert store.taken == {"alice-0", "bob-0"}
        over.set()


async def test_what_is_held_waits_beside_the_queue_and_one_of_it_asks() -> None:
    store, began, over = Store(), list[str](), asyncio.Event()
    turns = SlotGate(store, FakeCluster(), at_most=8)  # type: ignore[arg-type]
    large = SPEC.model_copy(update={"gpu": 1})
    store.held = {large.placement_key()}
    async with asyncio.TaskGroup() as group:
        for number in range(50):
            group.create_task(hold(turns, replace(sandbox("alice", number), spec=large), began, over))
        group.create_task(hold(turns, replace(sandbox("carol", 0), spec=large), began, over))
        await asyncio.sleep(0.5)
        group.create_task(hold(turns, sandbox("bob", 0), began, over))
        await asyncio.sleep(5)
        assert began == ["bob-0"]
        assert len(store.asked) <= 12
        store.held.clear()
        turns.wake()
        await asyncio.sleep(0.5)
        # Fair between owners still.
        assert len(began) == 8
        assert "carol-0" in began
        over.set()
    assert (len(began), turns.waiting, store.taken, turns._held_queues) == (52, 0, set(), {})


async def test_held_ones_that_are_cancelled_leave_nothing() -> None:
    store, began, over = Store(), list[str](), asyncio.Event()
    turns = SlotGate(store, FakeCluster(), at_most=8)  # type: ignore[arg-type]
    store.held = {SPEC.placement_key()}
    tasks = [asyncio.create_task(hold(turns, sandbox("alice", number), began, over)) for number in range(5)]
    await asyncio.sleep(1.5)
    for one in tasks[:4]:
        one.cancel()
    await asyncio.wait(tasks[:4])
    store.held.clear()
    over.set()
    await tasks[4]
    assert (began, turns.waiting, store.taken, turns._held_queues) == (["alice-4"], 0, set(), {})


async def test_a_store_that_has_forgotten_the_slots_gets_them_again() -> None:
    store, began, over, cluster = Store(), list[str](), asyncio.Event(), FakeCluster(starts_per_node=2)
    turns = SlotGate(store, cluster, at_most=8)  # type: ignore[arg-type]
    async with asyncio.TaskGroup() as group:
        for number in range(3):
            group.create_task(hold(turns, sandbox("alice", number), began, over))
            await asyncio.sleep(0.1)
            await turns.placed(Placement(f"alice-{number}", "n1" if number else "", "no room"))
        group.create_task(hold(turns, sandbox("alice", 3), began, over))
        await asyncio.sleep(0.1)
        emptied = Store()
        await turns.retake(emptied)  # type: ignore[arg-type]
        assert emptied.taken == {"alice-1", "alice-2", "alice-3"}
        assert {name: one.node for name, one in emptied.slots._placed.items()} == {"alice-1": "n1", "alice-2": "n1"}
        over.set()
