"""Waiting for what the product does by itself: bounded, so that a defect fails the test and does not hang the level."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

from rollbox import Sandbox
from rollbox.errors import SandboxError

_T = TypeVar("_T")
# The first looks come one upon the other: what takes milliseconds is seen within milliseconds. Whoever waits for
# seconds looks a few times in each, and leaves the cores to what is waited for.
_AT_ONCE = 5
_FIRST_S, _LONGEST_S = 0.01, 0.2


async def until(look: Callable[[], Awaitable[_T]], limit_s: float = 120.0) -> _T:
    """Look until the answer is true, and return it.

    Raises:
        TimeoutError: it did not become true within `limit_s`.
    """
    pause_s = _FIRST_S
    async with asyncio.timeout(limit_s):
        for looks in itertools.count(1):
            if seen := await look():
                return seen
            if looks > _AT_ONCE:
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_S)
    raise AssertionError("not reached")


async def succeeds(sandbox: Sandbox, command: str) -> bool:
    """Whether a command in the sandbox exits with 0 now."""
    return (await sandbox.exec(command)).ok


@contextlib.asynccontextmanager
async def waiting(
    sandbox: Sandbox, command: str = "touch /tmp/began; sleep 600"
) -> AsyncIterator[asyncio.Task[object]]:
    """A call that has begun in the sandbox and waits."""
    call: asyncio.Task[object] = asyncio.create_task(sandbox.exec(command))
    try:
        await until(lambda: succeeds(sandbox, "cat /tmp/began"))
        yield call
    finally:
        call.cancel()
        with contextlib.suppress(asyncio.CancelledError, SandboxError):
            await call
