"""Calls that must not be left half-way: the other side goes on with them whether we listen or not."""

import asyncio
from typing import TypeVar

T = TypeVar("T")


async def finish(work: "asyncio.Task[T]") -> T:
    """Waits for ``work`` to its end, even when the caller is cancelled meanwhile (it is cancelled afterwards).

    A server goes on with a call whose client has gone: what it makes then, nobody would know to remove. A second
    cancellation gives the work up.
    """
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        try:
            await asyncio.wait([work])
        finally:
            if not work.cancel() and not work.cancelled():
                work.exception()  # seen; the caller has gone
        raise
