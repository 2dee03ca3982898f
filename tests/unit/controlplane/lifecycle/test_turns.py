"""The start queue between owners; that starts are bounded and in order is tested with the service."""

import asyncio
from dataclasses import replace

from controlplane.lifecycle.turns import Turns
from controlplane.model import Sandbox, State
from tests.support.fake_cluster import FakeCluster
from tests.support.virtual_time import VirtualClock
from tests.support.world import SPEC


class Slots:
    """The store's part: so many slots."""

    def __init__(self) -> None:
        self.taken: set[str] = set()

    async def take_slot(self, sandbox_id: str, limit: int, until_ms: int) -> bool:
        await asyncio.sleep(0.001)
        if len(self.taken) < limit:
            self.taken.add(sandbox_id)
        return sandbox_id in self.taken

    async def free_slot(self, sandbox_id: str) -> None:
        self.taken.discard(sandbox_id)


def sandbox(owner: str, number: int) -> Sandbox:
    now_ms = VirtualClock().now_ms()
    return replace(Sandbox(f"{owner}-{number}", owner, SPEC, now_ms, now_ms, "f"))


async def start(turns: Turns, one: Sandbox, began: list[str]) -> None:
    async with turns.turn(one):
        began.append(one.owner)
        await asyncio.sleep(1)


async def test_the_few_of_one_owner_do_not_wait_for_the_herd_of_another() -> None:
    turns, began = Turns(Slots(), FakeCluster(), at_most=4), list[str]()  # type: ignore[arg-type]
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
    slots, began = Slots(), list[str]()
    turns = Turns(slots, FakeCluster(), at_most=1)  # type: ignore[arg-type]
    begun = replace(sandbox("bob", 0), state=State.STARTING)
    slots.taken.add(begun.id)
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        group.create_task(start(turns, sandbox("alice", 0), began))
        await asyncio.sleep(0.5)
        group.create_task(start(turns, begun, began))
    assert began == ["bob", "alice"]
    assert (turns.taken, turns.waiting, slots.taken) == (0, 0, set())


async def test_who_is_cancelled_in_the_moment_of_his_turn_passes_it_on() -> None:
    turns, began = Turns(Slots(), FakeCluster(), at_most=1), list[str]()  # type: ignore[arg-type]
    tasks = [asyncio.create_task(start(turns, sandbox("alice", number), began)) for number in range(4)]
    await asyncio.sleep(0.5)
    # The second one is at the head and waits for a slot, the third one is in line.
    tasks[0].cancel()
    tasks[1].cancel()
    tasks[2].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert began == ["alice", "alice"]
    assert (turns.taken, turns.waiting) == (0, 0)
