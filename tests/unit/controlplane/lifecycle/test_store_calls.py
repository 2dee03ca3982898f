"""What a start costs the store, counted in calls: two replicas, more starts than slots."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from controlplane.lifecycle import Options
from controlplane.store import Slot
from tests.support.scheduled import Scheduled
from tests.support.shared_store import SharedMemory, SharedStore
from tests.support.virtual_time import VirtualClock
from tests.support.world import OWNER, SPEC, world

STEPS = ("admit", "get", "replace", "take_slot", "place_slot", "free_slot")
STARTS = 128
FEW = 24
SETTLES_S = 10.0


def counted(name: str, step: Callable[..., Awaitable[Any]], calls: Counter[str]) -> Callable[..., Awaitable[Any]]:
    """The step, a millisecond away."""

    async def call(*args: Any, **named: Any) -> Any:
        calls[name] += 1
        await asyncio.sleep(0.001)
        return await step(*args, **named)

    return call


async def test_two_replicas_take_slots_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    taken, clock = list[str](), VirtualClock()
    real = SharedStore.take_slot

    async def take(store: SharedStore, *asked: Any, **named: Any) -> Slot:
        slot = await real(store, *asked, **named)
        taken.extend([store.replica] if slot else [])
        return slot

    monkeypatch.setattr(SharedStore, "take_slot", take)
    core, options = SharedMemory(clock), Options(starts_in_flight=256)
    clusters = [Scheduled({"a": 1000.0, "b": 1000.0}, per_node=8, chosen_s=0.05) for _ in range(2)]
    async with (
        world(clusters[0], clock=clock, options=options, store=core.view("one")) as one,
        world(clusters[1], clock=clock, options=options, store=core.view("two")) as two,
        asyncio.TaskGroup() as group,
    ):
        for _ in range(STARTS):
            group.create_task(one.create(OWNER, SPEC))
        await asyncio.sleep(2)
        for _ in range(FEW):
            group.create_task(two.create(OWNER, SPEC))
    # The herd that came first does not hold up the few at the other replica, and these do not stop it.
    first, last = taken.index("two"), len(taken) - taken[::-1].index("two")
    assert 0.7 * FEW <= taken[first:last].count("one") <= 1.5 * FEW


async def test_a_start_frees_its_slot_with_its_record_and_no_other_call(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, clock = Counter[str](), VirtualClock()
    for name in STEPS:
        monkeypatch.setattr(SharedStore, name, counted(name, getattr(SharedStore, name), calls))
    core, options = SharedMemory(clock), Options(starts_in_flight=256)
    # The same nodes; each cluster pushes to its own replica.
    clusters = [Scheduled({"a": 1000.0, "b": 1000.0}, per_node=8, chosen_s=0.05) for _ in range(2)]
    async with (
        world(clusters[0], clock=clock, options=options, store=core.view("one")) as one,
        world(clusters[1], clock=clock, options=options, store=core.view("two")) as two,
    ):
        await asyncio.sleep(SETTLES_S)
        calls.clear()
        await asyncio.gather(*((one, two)[number % 2].create(OWNER, SPEC) for number in range(STARTS)))
        await asyncio.sleep(SETTLES_S)
    once = {"admit": STARTS, "replace": 2 * STARTS, "place_slot": STARTS}
    assert {name: made for name, made in calls.items() if name != "take_slot"} == once
    # What is freed wakes one of all that wait, and it asks when it may have a slot: hardly any question is refused.
    assert calls["take_slot"] < 1.1 * STARTS
    assert len(core.memory._slots) == 0
