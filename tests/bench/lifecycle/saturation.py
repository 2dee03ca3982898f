"""How many claims a second there are at most, with one and with two control planes."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack

from rollbox import Client
from tests.bench.lifecycle.stage import IMAGE, stage
from tests.bench.progress import doing
from tests.bench.record import Baseline, Record

POOL = 1500
LANES = 32


async def measure() -> list[Record]:
    """The records of this scenario. Cost: a minute."""
    one, two = await _saturated(1), await _saturated(2)
    where = (
        f"{LANES} in flight by one SDK process, a pool of {POOL} that is refilled meanwhile, everything on this machine"
    )
    baseline = Baseline("one control plane", one)
    return [
        Record("claims a second, one control plane", one, "1/s", where),
        Record("claims a second, two control planes", two, "1/s", where, baseline, faster_is="larger"),
    ]


async def _saturated(planes: int) -> float:
    async with stage() as ground, AsyncExitStack() as clients:
        doing(f"{planes} control plane{'s' if planes > 1 else ''}")
        first = await clients.enter_async_context(ground.client())
        await ground.fill(first, "warm", POOL)
        found = [first]
        for number in range(1, planes):
            await ground.add_plane()
            found.append(await clients.enter_async_context(ground.client(number)))
        return await _claimed(found)


async def _claimed(clients: list[Client]) -> float:
    claims = POOL - 2 * LANES
    left = iter(range(claims))

    async def lane(number: int) -> int:
        cold = 0
        for _ in left:
            made = await clients[number % len(clients)].create(IMAGE)
            cold += made.record.source == "cold"
        return cold

    await asyncio.gather(*(client.create(IMAGE) for client in clients))
    began = time.perf_counter()
    cold = sum(await asyncio.gather(*(lane(number) for number in range(LANES))))
    took_s = time.perf_counter() - began
    if cold:
        raise RuntimeError(f"{cold} of {claims} were cold: the figure would be another one's")
    return claims / took_s
