"""How many claims a second there are at most, and what each costs, with one and with two control planes."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass

from rollbox import Client
from tests.bench.lifecycle.stage import IMAGE, stage
from tests.bench.progress import doing
from tests.bench.record import Baseline, Record

POOL = 1500
LANES = 32
CLAIMS = POOL - 2 * LANES


@dataclass(frozen=True)
class Run:
    """What one installation did.

    Attributes:
        rate: claims a second.
        cpu_ms: what a claim cost all control planes, with the start that takes its place.
    """

    rate: float
    cpu_ms: float


async def measure() -> list[Record]:
    """The records of this scenario. Cost: a minute."""
    one, two = await _saturated(1), await _saturated(2)
    where = (
        f"{LANES} in flight by one SDK process, a pool of {POOL} that is refilled meanwhile, everything on this machine"
    )
    rate, cpu = Baseline("one control plane", one.rate), Baseline("one control plane", one.cpu_ms)
    also = f"{where}; until the pool is full again"
    return [
        Record("claims a second, one control plane", one.rate, "1/s", where),
        Record("claims a second, two control planes", two.rate, "1/s", where, rate, faster_is="larger"),
        Record("CPU of all control planes for a claim, one control plane", one.cpu_ms, "ms", also),
        Record("CPU of all control planes for a claim, two control planes", two.cpu_ms, "ms", also, cpu),
    ]


async def _saturated(planes: int) -> Run:
    async with stage() as ground, AsyncExitStack() as clients:
        doing(f"{planes} control plane{'s' if planes > 1 else ''}")
        first = await clients.enter_async_context(ground.client())
        await ground.fill(first, "warm", POOL)
        found = [first]
        for number in range(1, planes):
            await ground.add_plane()
            found.append(await clients.enter_async_context(ground.client(number)))
        await asyncio.gather(*(client.create(IMAGE) for client in found))
        await ground.filled(first, "warm", POOL)
        before_s = ground.planes_cpu_s()
        rate = await _claimed(found)
        await ground.filled(first, "warm", POOL)
        return Run(rate, (ground.planes_cpu_s() - before_s) * 1000 / CLAIMS)


async def _claimed(clients: list[Client]) -> float:
    left = iter(range(CLAIMS))

    async def lane(number: int) -> int:
        cold = 0
        for _ in left:
            made = await clients[number % len(clients)].create(IMAGE)
            cold += made.record.source == "cold"
        return cold

    began = time.perf_counter()
    cold = sum(await asyncio.gather(*(lane(number) for number in range(LANES))))
    took_s = time.perf_counter() - began
    if cold:
        raise RuntimeError(f"{cold} of {CLAIMS} were cold: the figure would be another one's")
    return CLAIMS / took_s
