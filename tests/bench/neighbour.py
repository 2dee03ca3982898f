"""A sandbox next to one that is bombed: how long its commands take, against the same while nothing burns."""

from __future__ import annotations

import asyncio
import contextlib

from rollbox import Client, Sandbox, SandboxError
from tests.bench.exec_path import closed_loop
from tests.bench.record import Baseline, Record, distribution
from tests.support.bombs import BOMBS
from tests.support.stack import Product

EXECS = 1000
BURNS_S = 60.0


async def measure(product: Product, image: str) -> list[Record]:
    """The records of this scenario, with sandboxes of this image. Cost: two minutes."""
    async with Client(product.url, product.api_key) as client, await client.create(image) as neighbour:
        await _execs(neighbour)
        quiet = distribution(await _execs(neighbour))
        return [await _beside(client, neighbour, name, quiet) for name in BOMBS]


async def _beside(client: Client, neighbour: Sandbox, name: str, quiet: dict[str, float]) -> Record:
    # Half a core: a neighbour's share of the processor is the scheduler's business, not what is measured here.
    bombed = await client.create(neighbour.record.image, cpu=0.5, memory="256Mi")
    burning = asyncio.create_task(_burn(bombed, BOMBS[name]))
    try:
        latencies = distribution(await _execs(neighbour))
    finally:
        burning.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await burning
        await bombed.delete()
    return Record(
        f"exec of true beside a sandbox with: {name}, p99",
        latencies["p99"],
        "ms",
        "ratio >= 0.5",
        f"{EXECS} execs of true, one at a time, while the bomb goes off again and again next door",
        Baseline("the same while nothing burns, p99", quiet["p99"], quiet),
        distribution=latencies,
    )


async def _burn(sandbox: Sandbox, bomb: str) -> None:
    while True:
        # It may end the sandbox, which is its own doing.
        with contextlib.suppress(SandboxError):
            await sandbox.exec(bomb, timeout=BURNS_S)
        await asyncio.sleep(0.05)


async def _execs(sandbox: Sandbox) -> list[float]:
    async def call(_: int) -> None:
        result = await sandbox.exec(["true"])
        if result.exit_code != 0:
            raise RuntimeError(f"exec of true ended with {result}")

    return await closed_loop(1, EXECS, call)
