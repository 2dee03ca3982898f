"""Timers by sandbox: and one loop that sleeps until the earliest timer is due."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from controlplane.clock import Clock
from controlplane.lifecycle.deadlines import Deadlines

# The wall clock may be set while the loop sleeps on the monotonic one; this bounds how late a timer can be then.
MAX_SLEEP_MS: Final = 60_000


class Timers:
    """Calls ``expire(sandbox_id)`` at the time that was last set for a sandbox."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._deadlines = Deadlines()
        self._earlier = asyncio.Event()

    def watch(self, sandbox_id: str, at_ms: int) -> None:
        """Sets or moves a sandbox's timer to ``at_ms`` (Unix ms). Cost: O(log n)."""
        before_ms = self._deadlines.next_ms
        self._deadlines.put(sandbox_id, at_ms)
        if before_ms is None or at_ms < before_ms:
            self._earlier.set()

    def forget(self, sandbox_id: str) -> None:
        """Removes a sandbox's timer; unknown ids are ignored."""
        self._deadlines.discard(sandbox_id)

    async def run(self, expire: Callable[[str], Awaitable[None]], at_once: int = 1) -> None:
        """Runs until cancelled, with at most ``at_once`` calls of ``expire`` at a time."""
        free = asyncio.Semaphore(at_once)
        async with asyncio.TaskGroup() as group:
            while True:
                self._earlier.clear()
                while (sandbox_id := next(self._deadlines.due(self._clock.now_ms()), None)) is not None:
                    await free.acquire()
                    expiry = group.create_task(_run(expire, sandbox_id), name=f"expire {sandbox_id}")
                    expiry.add_done_callback(lambda _: free.release())
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._sleep_s()):
                        await self._earlier.wait()

    def _sleep_s(self) -> float | None:
        if (next_ms := self._deadlines.next_ms) is None:
            return None
        return min(next_ms - self._clock.now_ms(), MAX_SLEEP_MS) / 1000


async def _run(expire: Callable[[str], Awaitable[None]], sandbox_id: str) -> None:
    await expire(sandbox_id)
