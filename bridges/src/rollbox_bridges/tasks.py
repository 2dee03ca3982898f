"""Tasks that a request has beside its own: awaited without a turn of the event loop where they have ended already."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence


async def finished(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Wait until all have ended, or one has failed; raises what that has raised. The others go on."""
    if not all(task.done() for task in tasks):
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    for task in tasks:
        if task.done():
            task.result()


async def over(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Cancel those that run, and wait until all have ended, in whatever way."""
    running = [task for task in tasks if not task.done()]
    for task in running:
        task.cancel()
    if running:
        await asyncio.wait(running)
    for task in tasks:
        if not task.cancelled():
            # Retrieved, so that asyncio does not log it: another one's failure was raised, or the caller has gone.
            task.exception()
