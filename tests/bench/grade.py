"""Grading in a fresh sandbox of a cached image: what comes before the tests, cold and from a pool."""

from __future__ import annotations

import statistics
import time

from rollbox import Client, Sandbox, Verdict
from tests.bench.progress import doing
from tests.bench.record import Baseline, Record, of_rounds
from tests.support.stack import Product
from tests.support.waiting import until

COLD, WARM = 7, 20
POOL = "bench-grade"
MEMORY = "256Mi"
MADE = "mkdir -p /app/src; for n in $(seq 20); do head -c 4096 /dev/urandom > /app/src/$n; done; echo 42 > /app/answer"
WHAT = "a tree of 21 files and 80 KiB, one of the tests', kept solver, everything on this machine"


async def measure(product: Product, *, image: str) -> list[Record]:
    """The records of this scenario, on an engine or a cluster. Cost: a minute."""
    async with Client(product.url, product.api_key) as client, await client.create(image, memory=MEMORY) as solver:
        await solver.exec(MADE, check=True)
        cold = await _cold(client, solver, image)
        await client.set_pool(POOL, image, (4, 8), memory=MEMORY)
        try:
            warm = await _warm(client, solver, image)
        finally:
            await client.change_pool(POOL, drain=True)
            await client.remove_pool(POOL)
        return [*cold, *warm]


async def _graded(solver: Sandbox, image: str) -> Verdict:
    verdict = await solver.grade(
        image, take="/app", run="cat /app/answer /tests/t", files={"/tests/t": "t"}, memory=MEMORY
    )
    assert verdict.stdout == "42\nt", verdict
    return verdict


async def _cold(client: Client, solver: Sandbox, image: str) -> list[Record]:
    doing("grade, cold")
    verdicts, creates = [], []
    for _ in range(COLD):
        verdicts.append(await _graded(solver, image))
        creates.append(await _created(client, image))
    return [_before("grade before the tests, cold, p50", verdicts, Baseline("a create alone, p50", *_p50(creates)))]


async def _warm(client: Client, solver: Sandbox, image: str) -> list[Record]:
    doing("grade, warm")
    verdicts, claims = [], []
    for _ in range(WARM):
        await until(lambda: _ready(client))
        verdicts.append(await _graded(solver, image))
        await until(lambda: _ready(client))
        claims.append(await _created(client, image))
    steps = {name: [getattr(one.times, name) for one in verdicts] for name in ("stop_ms", "take_ms", "files_ms")}
    return [
        _before("grade before the tests, warm, p50", verdicts, Baseline("a claim alone, p50", *_p50(claims))),
        *(
            Record(f"grade, warm, {name.removesuffix('_ms')}, p50", _p50(one)[0], "ms", WHAT, distribution=_p50(one)[1])
            for name, one in steps.items()
        ),
    ]


async def _ready(client: Client) -> bool:
    pool = await client.pool(POOL)
    return pool.ready >= pool.min_warm


async def _created(client: Client, image: str) -> float:
    began = time.perf_counter()
    made = await client.create(image, memory=MEMORY, egress="offline")
    took = (time.perf_counter() - began) * 1e3
    await made.delete()
    return took


def _p50(values: list[float]) -> tuple[float, dict[str, float]]:
    return statistics.median(values), of_rounds(values)


def _before(name: str, verdicts: list[Verdict], baseline: Baseline) -> Record:
    value, spread = _p50([one.times.before_run_ms for one in verdicts])
    return Record(name, value, "ms", WHAT, baseline, distribution=spread)
