"""What a sandbox's life costs the one Redis: scripts, processor time and bytes of a cold create and of a delete."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from redis.asyncio import Redis

from rollbox import Client, Sandbox
from tests.bench.lifecycle.stage import BOOT_MS, IMAGE, Stage, stage
from tests.bench.progress import doing
from tests.bench.record import Record

COUNT = 400
AT_ONCE = 16
# What the control plane's loops do meanwhile is in it; before the first look, all have had a turn.
SETTLES_S = 5.0


@dataclass(frozen=True)
class Spent:
    """What Redis had done by then.

    Attributes:
        scripts: that it has run.
        cpu_s: processor time, in the kernel and outside.
        used_bytes: that its data take.
    """

    scripts: int
    cpu_s: float
    used_bytes: int

    @classmethod
    async def now(cls, redis: Redis) -> Spent:
        """Ask it."""
        told: dict[str, Any] = await redis.info("all")
        scripts = sum(told.get(f"cmdstat_{name}", {}).get("calls", 0) for name in ("eval", "evalsha", "fcall"))
        return cls(scripts, told["used_cpu_user"] + told["used_cpu_sys"], told["used_memory"])


async def measure() -> list[Record]:
    """The records of this scenario. Cost: a minute."""
    async with stage() as ground, ground.client() as client:
        doing(f"{COUNT} cold creates and as many deletes, {AT_ONCE} at once")
        async with Redis.from_url(ground.redis_url) as redis:
            return await _lives(ground, client, redis)


async def _lives(ground: Stage, client: Client, redis: Redis) -> list[Record]:
    await _deleted(await _created(client, AT_ONCE))
    await asyncio.sleep(SETTLES_S)
    before = await Spent.now(redis)
    made = await _created(client, COUNT)
    between = await Spent.now(redis)
    await _deleted(made)
    after = await Spent.now(redis)
    how = (
        f"{COUNT} sandboxes, {AT_ONCE} at once, {len(ground.planes)} control plane with its loops, played sidecars, up "
        f"in {BOOT_MS:g} ms; by what Redis tells of itself"
    )
    return [
        *_of("cold create", before, between, how),
        *_of("delete", between, after, how),
        Record("memory of Redis for a live sandbox", (between.used_bytes - before.used_bytes) / COUNT, "bytes", how),
    ]


def _of(what: str, before: Spent, after: Spent, how: str) -> list[Record]:
    return [
        Record(f"scripts of Redis for a {what}", (after.scripts - before.scripts) / COUNT, "", how),
        Record(f"processor time of Redis for a {what}", 1000 * (after.cpu_s - before.cpu_s) / COUNT, "ms", how),
    ]


async def _created(client: Client, count: int) -> list[Sandbox]:
    return await _some_at_a_time([lambda: client.create(IMAGE, labels={"bench": "store"})] * count)


async def _deleted(made: list[Sandbox]) -> None:
    await _some_at_a_time([one.delete for one in made])


async def _some_at_a_time(calls: list[Any]) -> list[Any]:
    free = asyncio.Semaphore(AT_ONCE)

    async def call(number: int) -> Any:
        async with free:
            return await calls[number]()

    return await asyncio.gather(*map(call, range(len(calls))))
