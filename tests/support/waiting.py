"""Waiting for what the product does by itself: bounded, so that a defect fails the test and does not hang the level."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

from rollbox import Sandbox
from rollbox.errors import SandboxError

_T = TypeVar("_T")


async def until(look: Callable[[], Awaitable[_T]], limit_s: float = 120.0) -> _T:
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
