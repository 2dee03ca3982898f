"""A create and its first cell, from a pool that keeps interpreters running and from one that does not."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Sequence

from rollbox import Client
from tests.bench.progress import doing
from tests.bench.record import Baseline, Record, of_rounds

ROUNDS = 3
WARM = 4
# Each pool has an amount of its own, so that no create claims from the other.
WITH, WITHOUT = "bench-interpreters", "bench-plain"
POOLS = {WITH: "208Mi", WITHOUT: "224Mi"}


async def first_cells(client: Client, image: str) -> list[Record]:
    """The records of first cells."""
    doing("create and first cell, from pools")
    took: dict[str, list[tuple[float, float]]] = {name: [] for name in POOLS}
    try:
        await client.set_pool(WITH, image, WARM, memory=POOLS[WITH], interpreter="python")
        await client.set_pool(WITHOUT, image, WARM, memory=POOLS[WITHOUT])
        for _ in range(ROUNDS):
            for name in POOLS:
                await _full(client, name)
            for name, memory in POOLS.items():
                each = [await _first(client, image, memory) for _ in range(WARM)]
                created, answered = zip(*each, strict=True)
                took[name].append((statistics.median(created), statistics.median(answered)))
    finally:
        for name in POOLS:
            await client.remove_pool(name)
    (whole, cell), (other_whole, other_cell) = (zip(*took[name], strict=True) for name in (WITH, WITHOUT))
    return [
        _record("create and first cell, from a pool, p50", whole, other_whole),
        _record("first cell after a create, p50", cell, other_cell),
    ]


async def _full(client: Client, name: str) -> None:
    while (pool := await client.pool(name)).ready < WARM:
        assert not pool.failures, pool.why
        await asyncio.sleep(0.5)


async def _first(client: Client, image: str, memory: str) -> tuple[float, float]:
    """Milliseconds from the call of the create, and from its answer, to the first cell's."""
    began = time.perf_counter()
    async with await client.create(image, memory=memory) as sandbox:
        made = time.perf_counter()
        assert sandbox.record.source == "warm"
        async with await sandbox.interpreter() as python:
            assert (await python.run("1+1")).text == "2"
            over = time.perf_counter()
    return (over - began) * 1e3, (over - made) * 1e3


def _record(name: str, mine: Sequence[float], others: Sequence[float]) -> Record:
    where = f"pools of {WARM}, emptied in turn, {ROUNDS} rounds, one at a time, everything on this machine"
    kept, plain = of_rounds(mine), of_rounds(others)
    baseline = Baseline("the same from a pool without the option", plain["p50"], plain)
    return Record(name, kept["p50"], "ms", where, baseline, distribution=kept)
