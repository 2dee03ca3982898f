"""Stores of many replicas on one real Redis."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from redis.asyncio import Redis

from controlplane.clock import SystemClock
from controlplane.store import RedisStore
from tests.support.refilled import refilled


class ShiftedClock(SystemClock):
    """The machine's clock as it was at the beginning, moved on by the test alone: a slow machine passes no limit."""

    def __init__(self) -> None:
        super().__init__()
        self._began_ms = super().now_ms()
        self.ahead_ms = 0

    def now_ms(self) -> int:
        return self._began_ms + self.ahead_ms


@asynccontextmanager
async def replicas(url: str, number: int = 2, clock: ShiftedClock | None = None) -> AsyncIterator[list[RedisStore]]:
    """Stores of as many replicas on one Redis, empty and rebuilt."""
    async with AsyncExitStack() as stack, Redis.from_url(url) as redis:
        await redis.flushall()
        clock = clock or ShiftedClock()
        opened = [
            await stack.enter_async_context(RedisStore.open(url, installation="t", clock=clock, replica=f"r{one}"))
            for one in range(number)
        ]
        await refilled(opened[0])
        yield opened
