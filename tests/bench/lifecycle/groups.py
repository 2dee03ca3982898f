"""A group of warm sandboxes by one call, against as many creates side by side."""

from __future__ import annotations

import asyncio
import time

from rollbox import Client, SandboxGroup
from tests.bench.lifecycle.stage import IMAGE, stage
from tests.bench.progress import doing
from tests.bench.record import Baseline, Record, distribution

COUNT = 100
ROUNDS = 10


async def measure() -> list[Record]:
    """The records of this scenario. Cost: half a minute."""
    async with stage() as ground, ground.client() as client:
        await ground.fill(client, "warm", 2 * COUNT)
        doing(f"{ROUNDS} groups")
        together, apart = [], []
        for _ in range(ROUNDS + 1):
            await ground.filled(client, "warm", 2 * COUNT)
            together.append(await _together(client))
            await ground.filled(client, "warm", 2 * COUNT)
            apart.append(await _apart(client))
    # The first of each opens connections.
    mine, other = distribution(together[1:]), distribution(apart[1:])
    return [
        Record(
            f"{COUNT} warm sandboxes by one group call, p50",
            mine["p50"],
            "ms",
            f"{ROUNDS} groups, all warm; until the last one is in the caller's hand; everything on this machine",
            Baseline(f"{COUNT} creates side by side in one event loop, p50", other["p50"], other),
            distribution=mine,
        )
    ]


async def _together(client: Client) -> float:
    began = time.perf_counter()
    async with await SandboxGroup.create(IMAGE, n=COUNT, client=client) as group:
        took_ms = (time.perf_counter() - began) * 1e3
        _all_warm([member.record.source for member in group])
        await group.delete(wait=True)
    return took_ms


async def _apart(client: Client) -> float:
    began = time.perf_counter()
    made = await asyncio.gather(*(client.create(IMAGE, labels={"bench": "apart"}) for _ in range(COUNT)))
    took_ms = (time.perf_counter() - began) * 1e3
    await client.delete(labels={"bench": "apart"}, wait=True)
    _all_warm([one.record.source for one in made])
    return took_ms


def _all_warm(sources: list[str]) -> None:
    if set(sources) != {"warm"}:
        raise RuntimeError(f"{sources.count('cold')} of {len(sources)} were cold: the figure would be another one's")
