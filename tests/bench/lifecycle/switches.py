"""Switches of network policies with Redis as store and two control planes: from an owner's call until it is in force.

Egress is the real program and follows the feed of the first control plane; the relays in the sandboxes are played. The
second control plane hears of what is in force from Redis alone.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from itertools import cycle

from rollbox import Client, Sandbox
from tests.bench.lifecycle.stage import BOOT_MS, IMAGE, Stage, stage
from tests.bench.progress import doing
from tests.bench.record import Baseline, Record, distribution, of_rounds

COUNT = 200
ONE_BY_ONE = 300
ROUNDS = 5
AT_ONCE = 16
POLICIES = ("swe-eval", "packages")
_HERE, _THERE = "the control plane that egress is connected to", "another control plane"
_HOW = (
    f"{COUNT} sandboxes, Redis, two control planes with a gateway each, one egress, all on this machine; played "
    f"relays, up in {BOOT_MS:g} ms; no open connection"
)

Call = Callable[[Sandbox], Awaitable[object]]


class Switched:
    """Gives each sandbox the policy that it has not."""

    def __init__(self) -> None:
        self._at: Counter[str] = Counter()

    async def __call__(self, box: Sandbox) -> object:
        self._at[box.id] += 1
        return await box.egress(POLICIES[self._at[box.id] % 2])


async def measure() -> list[Record]:
    """The records of this scenario. Cost: two minutes."""
    async with stage(2, egress=True) as ground:
        await ground.add_egress(0)
        async with ground.client(0) as here, ground.client(1) as there:
            doing(f"{COUNT} creates with a policy")
            made, switched = await _created(here), Switched()
            records = []
            for client, where in ((here, _HERE), (there, _THERE)):
                boxes = [await client.connect(one.id) for one in made]
                records.append(await _one_by_one(boxes, switched, where))
                records += await _at_once(ground, boxes, switched, where)
            await here.delete(labels={"bench": "switches"})
    return records


async def _created(client: Client) -> Sequence[Sandbox]:
    free = asyncio.Semaphore(AT_ONCE)

    async def create(_: int) -> Sandbox:
        async with free:
            return await client.create(IMAGE, labels={"bench": "switches"}, egress=POLICIES[0])

    return await asyncio.gather(*map(create, range(COUNT)))


async def _one_by_one(boxes: Sequence[Sandbox], switched: Switched, where: str) -> Record:
    doing(f"{ONE_BY_ONE} switches one after the other, at {where}")
    reads, switches = [], []
    for box, _ in zip(cycle(boxes), range(ONE_BY_ONE), strict=False):
        reads.append(await _timed([box], _read))
        switches.append(await _timed([box], switched))
    read, switch = distribution(reads), distribution(switches)
    return Record(
        f"switch of one, in force, at {where}, p99",
        switch["p99"],
        "ms",
        f"{ONE_BY_ONE} one after the other; {_HOW}",
        Baseline("a read of the policy in turn with it, p99", read["p99"], read),
        distribution=switch,
    )


async def _at_once(ground: Stage, boxes: Sequence[Sandbox], switched: Switched, where: str) -> list[Record]:
    doing(f"{ROUNDS} times {COUNT} switches at once, at {where}")
    reads, switches, spent = [], [], []
    for _ in range(ROUNDS):
        reads.append(await _timed(boxes, _read))
        before_s = ground.planes_cpu_s()
        switches.append(await _timed(boxes, switched))
        spent.append(1000 * (ground.planes_cpu_s() - before_s) / COUNT)
    read, switch, took = of_rounds(reads), of_rounds(switches), of_rounds(spent)
    return [
        Record(
            f"switch of {COUNT} at once, the last in force, at {where}",
            switch["p50"],
            "ms",
            f"of as many sandboxes; {_HOW}",
            Baseline(f"{COUNT} reads of the policy at once, in turn with it", read["p50"], read),
            distribution=switch,
        ),
        Record(
            f"processor time of both control planes for a switch, of {COUNT} at once, at {where}",
            took["p50"],
            "ms",
            _HOW,
            distribution=took,
        ),
    ]


async def _read(box: Sandbox) -> object:
    return await box.egress()


async def _timed(boxes: Sequence[Sandbox], call: Call) -> float:
    """How long it takes for all of them at once (ms)."""
    began = time.perf_counter()
    await asyncio.gather(*map(call, boxes))
    return 1000 * (time.perf_counter() - began)
