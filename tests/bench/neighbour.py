"""A sandbox next to one that is bombed: how long its commands take, against the same while nothing burns."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from rollbox import Client, Sandbox, SandboxError
from rollbox.bench import calls
from rollbox.bench.arrivals import closed_loop
from tests.bench.progress import doing
from tests.bench.record import Baseline, Record, distribution
from tests.bench.took import took_ms
from tests.support.bombs import BOMBS, FLOODS
from tests.support.stack import Product

EXECS = 1000
BURNS_S = 60.0
# What is left of a deleted sandbox is gone by then.
SETTLES_S = 5.0
ALL = {**BOMBS, **FLOODS}


@dataclass(frozen=True)
class Limit:
    """Another limit of the bombed sandboxes than they come with.

    Attributes:
        suffix: of the figure's name.
        conditions: what a reader needs to set it again.
        apply: sets it for the sandbox of this id.
    """

    suffix: str
    conditions: str
    apply: Callable[[str], Awaitable[None]]


async def measure(product: Product, image: str) -> list[Record]:
    """The records of this scenario, with sandboxes of this image. Cost: six minutes."""
    async with Client(product.url, product.api_key) as client, await client.create(image) as neighbour:
        await _execs(neighbour)
        return [await beside(client, neighbour, name) for name in ALL]


async def beside(client: Client, neighbour: Sandbox, name: str, limit: Limit | None = None) -> Record:
    """One bomb next door to `neighbour`; with `limit`, each bombed sandbox gets it as soon as it is there."""
    # Each bomb has a quiet of its own: how fast a machine is changes within minutes.
    await asyncio.sleep(SETTLES_S)
    quiet = distribution(await _execs(neighbour))
    doing(f"{name}{limit.suffix if limit else ''}")
    burning = asyncio.create_task(_burn(client, neighbour.record.image, ALL[name], limit))
    try:
        latencies = distribution(await _execs(neighbour))
    finally:
        burning.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await burning
    return Record(
        f"exec of true beside a sandbox with: {name}{limit.suffix if limit else ''}, p99",
        latencies["p99"],
        "ms",
        f"{EXECS} execs of true, one at a time, while the bomb goes off again and again next door"
        f"{limit.conditions if limit else ''}",
        Baseline("the same just before, while nothing burns, p99", quiet["p99"], quiet),
        distribution=latencies,
    )


async def _burn(client: Client, image: str, bomb: str, limit: Limit | None) -> None:
    """Let it go off again and again; where it has ended its sandbox or left nothing to run in it, in a fresh one."""
    while True:
        # Half a core: a neighbour's share of the processor is the scheduler's business, not what is measured here.
        async with await client.create(image, cpu=0.5, memory="256Mi") as bombed:
            if limit:
                await limit.apply(bombed.id)
            with contextlib.suppress(SandboxError):
                while True:
                    await bombed.exec(bomb, timeout=BURNS_S)
                    await asyncio.sleep(0.05)


async def _execs(sandbox: Sandbox) -> list[float]:
    return took_ms(await closed_loop(1, EXECS, calls.execs([sandbox])))
