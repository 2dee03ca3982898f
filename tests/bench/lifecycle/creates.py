"""Warm creates through the whole SDK path: by arrival shape, against cold ones of the same run."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from functools import partial

from rollbox import Client, Sandbox
from rollbox.bench import arrivals
from rollbox.bench.arrivals import Met
from rollbox.bench.shapes import SHAPES
from tests.bench.lifecycle.stage import BOOT_MS, IMAGE, stage
from tests.bench.progress import doing
from tests.bench.record import Baseline, Record, distribution

POOL = 400
PER_SECOND = 50.0
SECONDS = 20
COLD = 100
LIFE_S = 2.0


async def measure() -> list[Record]:
    """The records of this scenario. Cost: about two minutes."""
    async with stage() as ground, ground.client() as client:
        doing(f"{COLD} cold creates, then {SECONDS} s of warm ones")
        cold = await _cold(client)
        await ground.fill(client, "warm", POOL)
        # Connections, code and caches are warm as in the middle of a run.
        await arrivals.one_by_one(50, partial(_create, client))
        await _clear(client)
        count = round(PER_SECOND * SECONDS)
        async with asyncio.TaskGroup() as deletes:
            call = partial(_create_and_delete, client, deletes)
            steady = await arrivals.open_loop(arrivals.poisson(count, PER_SECOND), call)
        records = _steady(steady, cold)
        for shape in SHAPES.values():
            doing(shape.says)
            await ground.filled(client, "warm", POOL)
            met = await shape.play(partial(_create, client))
            records.append(_shaped(shape.says, met))
            await _clear(client)
    return records


async def _create(client: Client, number: int) -> object:
    return await client.create(IMAGE, labels={"bench": "create"})


async def _create_and_delete(client: Client, deletes: asyncio.TaskGroup, number: int) -> object:
    made = await client.create(IMAGE, labels={"bench": "create"}, env={"SEED": str(number)} if number % 2 else None)
    # Later, as a rollout does it: it is the product's work, not this create's.
    deletes.create_task(_delete_later(made))
    return made


async def _delete_later(made: Sandbox) -> None:
    await asyncio.sleep(LIFE_S)
    await made.delete()


async def _cold(client: Client) -> list[Met]:
    async def cold(number: int) -> object:
        return await client.create("localhost/bench/cold:1", labels={"bench": "cold"})

    met = await arrivals.open_loop(arrivals.poisson(COLD, PER_SECOND), cold)
    await client.delete(labels={"bench": "cold"}, wait=True)
    return met


async def _clear(client: Client) -> None:
    await client.delete(labels={"bench": "create"}, wait=True)


def _sources(met: Sequence[Met]) -> str:
    counts = Counter(one.answer.record.source for one in met if isinstance(one.answer, Sandbox))
    return ", ".join(f"{count} {source}" for source, count in sorted(counts.items()))


def _steady(met: Sequence[Met], cold: Sequence[Met]) -> list[Record]:
    how = (
        f"Poisson arrivals, {PER_SECOND:g}/s for {SECONDS} s, from when each was due; {_sources(met)}; every other one "
        f"brings an environment, which its sidecar is told before the answer; deleted {LIFE_S:g} s later, refilled all "
        "the while; client, gateway, control plane, Redis and all played sidecars on this machine"
    )
    halves = {"as the pool has it": met[::2], "with an environment": met[1::2]}
    return [record for what, half in halves.items() for record in _against(cold, half, what, how)]


def _against(cold: Sequence[Met], met: Sequence[Met], what: str, how: str) -> list[Record]:
    mine, other = distribution([one.ms for one in met]), distribution([one.ms for one in cold])
    baseline = f"cold creates of the same run, sidecars played with {BOOT_MS:g} ms to come up"
    return [
        Record(
            f"warm create through the SDK, {PER_SECOND:g}/s, {what}, {share}",
            mine[share],
            "ms",
            how,
            Baseline(f"{baseline}, {share}", other[share], other),
            distribution=mine,
        )
        for share in ("p50", "p99")
    ]


def _shaped(name: str, met: Sequence[Met]) -> Record:
    mine = distribution([one.ms for one in met])
    how = f"a pool of {POOL}, full at the start; {_sources(met)}; p50 {mine['p50']:.1f} ms"
    return Record(f"warm create through the SDK, p99, {name}", mine["p99"], "ms", how, distribution=mine)
