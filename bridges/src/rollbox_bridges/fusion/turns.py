"""How many requests run at a time, and how many wait: none waits without a bound, in number or in bytes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from rollbox_bridges.fusion.words import Busy

# Of bodies that are held, of requests that run and that wait. A guess: a quarter of a small node's memory.
_MOST_BYTES: Final = 2**29


class Turns:
    """Admits requests, and lets so many of them run, in the order in which they came.

    Args:
        at_once: how many run.
        waiting: how many more may wait.
        most_bytes: how long the bodies of all of them may be together.
    """

    def __init__(self, at_once: int, waiting: int, most_bytes: int = _MOST_BYTES) -> None:
        self._at_once = at_once
        self._most = at_once + waiting
        self._most_bytes = most_bytes
        self._slots = asyncio.Semaphore(at_once)
        self._admitted = 0
        self._bytes = 0

    @asynccontextmanager
    async def admitted(self, size_bytes: int) -> AsyncIterator[None]:
        """Hold a place, before the body is read.

        Raises:
            Busy: there is none.
        """
        if self._admitted >= self._most:
            raise Busy(
                f"{self._at_once} requests run and {self._most - self._at_once} wait: there is no place for more"
            )
        if self._bytes + size_bytes > self._most_bytes:
            raise Busy(
                f"the bodies of the requests that run and wait have {self._bytes} bytes: there is no room for more"
            )
        self._admitted += 1
        self._bytes += size_bytes
        try:
            yield
        finally:
            self._admitted -= 1
            self._bytes -= size_bytes

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[float]:
        """Wait for the turn, and hold it; gives how long that was, in seconds."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        async with self._slots:
            yield loop.time() - began
