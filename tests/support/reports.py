"""Gateways as the control plane hears of them: a report every five seconds, from when they come until they are cut."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress

from tests.support.world import World

EVERY_S = 5.0


def nothing() -> Iterable[tuple[str, int]]:
    """Nothing was used."""
    return ()


@asynccontextmanager
async def reporting(
    plane: World, gateway_id: str = "gw-1", used: Callable[[], Iterable[tuple[str, int]]] = nothing
) -> AsyncIterator[asyncio.Task[None]]:
    """A gateway that reports while the block runs, or until the task is cancelled."""

    async def report() -> None:
        while True:
            plane.service.activity.report(gateway_id, used())
            await asyncio.sleep(EVERY_S)

    task = asyncio.create_task(report())
    try:
        yield task
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
