"""Waiting for what the product does by itself: bounded, so that a defect fails the test and does not hang the level."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from rollbox import Sandbox

_T = TypeVar("_T")


async def until(look: Callable[[], Awaitable[_T]], limit_s: float = 30.0) -> _T:
    """Look until the answer is true, and return it; a look is a real call, which is pause enough.

    Raises:
        TimeoutError: it did not become true within `limit_s`.
    """
    async with asyncio.timeout(limit_s):
        while not (seen := await look()):
            pass
    return seen


async def succeeds(sandbox: Sandbox, command: str) -> bool:
    """Whether a command in the sandbox exits with 0 now."""
    return (await sandbox.exec(command)).ok
