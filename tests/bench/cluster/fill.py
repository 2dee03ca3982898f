"""Many sandboxes for a benchmark, made a few at a time and removed at the end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from rollbox import Client, Sandbox
from tests.bench.progress import doing
from tests.support.images import ON_CLUSTER


@contextlib.asynccontextmanager
async def filled(client: Client, count: int, run: str, start_timeout_s: float = 600.0) -> AsyncIterator[list[Sandbox]]:
    """`count` sandboxes with the label `run`; all creates are made at once: bounding them is the product's part."""
    labels = {"bench": run}
    doing(f"{count} sandboxes come up")
    try:
        yield list(
            await asyncio.gather(
                *(
                    client.create(
                        ON_CLUSTER,
                        cpu=(0.001, 2),
                        memory=("64Mi", "256Mi"),
                        labels=labels,
                        ttl=3600,
                        start_timeout=start_timeout_s,
                    )
                    for _ in range(count)
                )
            )
        )
    finally:
        doing(f"{count} sandboxes go")
        # Room for what comes next, not only an end on record.
        await client.delete(labels=labels, wait=True, wait_timeout=300)
