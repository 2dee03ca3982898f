"""All that is done inside a sandbox, measured beside what does the same without rollbox, in the same run."""

from __future__ import annotations

from rollbox import Client
from tests.bench.record import Record
from tests.bench.surface import parallel, streams, transfers
from tests.bench.surface.ground import Engine, Ground
from tests.support.stack import Stack

MEMORY = "1Gi"


async def measure(stack: Stack) -> list[Record]:
    """The records of this scenario on an engine. Cost: two minutes."""
    return await measure_on(Engine(stack))


async def measure_on(ground: Ground) -> list[Record]:
    """The same wherever the product stands."""
    async with (
        Client(ground.product.url, ground.product.api_key) as client,
        await client.create(ground.image, memory=MEMORY) as sandbox,
    ):
        return [
            *[record for maker in streams.MAKERS.items() for record in await streams.stdout(sandbox, *maker)],
            await streams.keystrokes(sandbox),
            *await streams.proxy(ground, sandbox),
            *await parallel.measure(sandbox),
            *await transfers.copies(ground, sandbox),
            *await transfers.small_files(ground, sandbox),
            *await transfers.flat_memory(ground, sandbox),
        ]
