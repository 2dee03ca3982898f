"""Waiting for what nobody announces: looked at again and again, so that a slow machine only makes it take longer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

# No measure of speed: it turns a hang into a failure, before pytest ends the test without a word of what hung.
LIMIT_S = 120.0
_PAUSE_S = 0.01


async def eventually(true: Callable[[], object], limit_s: float = LIMIT_S) -> None:
    """Return once `true()` is true.

    Raises:
        TimeoutError: it did not become true within `limit_s`.
    """
    async with asyncio.timeout(limit_s):
        while not true():  # noqa: ASYNC110 - nothing here tells of it
            await asyncio.sleep(_PAUSE_S)


def eventually_true(true: Callable[[], object], limit_s: float = LIMIT_S) -> None:
    """As `eventually`, for tests without a loop."""
    until_s = time.monotonic() + limit_s
    while not true():
        if time.monotonic() > until_s:
            raise TimeoutError(f"not true within {limit_s:g} s")
        time.sleep(_PAUSE_S)
