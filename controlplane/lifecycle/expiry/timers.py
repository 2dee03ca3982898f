"""Timers by sandbox: one heap, and one loop that sleeps until the earliest timer is due."""

import asyncio
import heapq
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from controlplane.clock import Clock

# The wall clock may be set while the loop sleeps on the monotonic one; this bounds how late a timer can be then.
MAX_SLEEP_MS: Final = 60_000
# Below this many stale entries the heap is not worth rebuilding.
SLACK_ENTRIES: Final = 1024


class Timers:
    """Calls ``expire(sandbox_id)`` at the time that was last set for a sandbox."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._moments: dict[str, int] = {}
        self._heap: list[tuple[int, str]] = []
        self._earlier = asyncio.Event()

    def watch(self, sandbox_id: str, at_ms: int) -> None:
        """Sets or moves a sandbox's timer to ``at_ms`` (Unix ms). Cost: O(log n)."""
        if self._moments.get(sandbox_id) == at_ms:
            return
        self._moments[sandbox_id] = at_ms
        heapq.heappush(self._heap, (at_ms, sandbox_id))
        self._compact()
        if self._heap[0] == (at_ms, sandbox_id):
            self._earlier.set()

    def forget(self, sandbox_id: str) -> None:
        """Removes a sandbox's timer; unknown ids are ignored."""
        self._moments.pop(sandbox_id, None)

    async def run(self, expire: Callable[[str], Awaitable[None]], at_once: int = 1) -> None:
        """Runs until cancelled, with at most ``at_once`` calls of ``expire`` at a time."""
        free = asyncio.Semaphore(at_once)
        async with asyncio.TaskGroup() as group:
            while True:
                self._earlier.clear()
                while (sandbox_id := self._next_due()) is not None:
                    await free.acquire()
                    expiry = group.create_task(_run(expire, sandbox_id), name=f"expire {sandbox_id}")
                    expiry.add_done_callback(lambda _: free.release())
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._sleep_s()):
                        await self._earlier.wait()

    def _next_due(self) -> str | None:
        while self._heap and self._heap[0][0] <= self._clock.now_ms():
            at_ms, sandbox_id = heapq.heappop(self._heap)
            if self._moments.get(sandbox_id) == at_ms:
                del self._moments[sandbox_id]
                return sandbox_id
        return None

    def _sleep_s(self) -> float | None:
        if not self._heap:
            return None
        return min(self._heap[0][0] - self._clock.now_ms(), MAX_SLEEP_MS) / 1000

    def _compact(self) -> None:
        # Deleted and extended sandboxes leave stale entries, which would stay until their time, days ahead.
        if len(self._heap) > 2 * len(self._moments) + SLACK_ENTRIES:
            self._heap = [(at_ms, sandbox_id) for sandbox_id, at_ms in self._moments.items()]
            heapq.heapify(self._heap)


async def _run(expire: Callable[[str], Awaitable[None]], sandbox_id: str) -> None:
    await expire(sandbox_id)
