"""Completes calls that must not be abandoned when their caller is cancelled."""

import asyncio
from typing import TypeVar

T = TypeVar("T")


async def finish(work: "asyncio.Task[T]") -> T:
    """Waits until ``work`` has finished, even when the caller is cancelled meanwhile; the caller is cancelled after it.

    A server goes on with a call whose client has disconnected, and what it creates then would be orphaned. A second
    cancellation cancels the work.
    """
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        try:
            await asyncio.wait([work])
        finally:
            if not work.cancel() and not work.cancelled():
                work.exception()  # retrieved, so that asyncio does not log it; the caller is cancelled
        raise
