"""A queue with one waiter at its head at a time; the next head is chosen fairly between owners."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from controlplane.lifecycle.waiting.fair_queue import FairQueue


class HeadQueue:
    """Waiters, one of which is at the head.

    Attributes:
        news: set when the head is to look again.

    Args:
        holds: how much of the awaited resource an owner holds.
    """

    def __init__(self, holds: Callable[[str], int]) -> None:
        self._holds = holds
        self._queue: FairQueue[asyncio.Future[None]] = FairQueue()
        self._headed = False
        self.news = asyncio.Event()

    def __len__(self) -> int:
        """How many wait behind the head."""
        return len(self._queue)

    @property
    def empty(self) -> bool:
        """Whether it has no waiter and no head."""
        return not self._headed and not len(self._queue)

    @asynccontextmanager
    async def at_head(self, owner: str, ticket: int) -> AsyncIterator[None]:
        """Waits until this waiter is the head, and keeps it there for the block; a smaller ticket came earlier."""
        turn = asyncio.get_running_loop().create_future()
        self._queue.join(owner, ticket, turn)
        self._pass_on()
        try:
            await turn
            yield
        finally:
            # Also when it was cancelled at the moment when it became the head.
            if turn.done() and not turn.cancelled():
                self._headed = False
                self._pass_on()
            else:
                self._queue.leave(owner, ticket)

    def _pass_on(self) -> None:
        """Chooses the next head, if there is none: usually a waiter of the owner that holds least."""
        while not self._headed:
            owner = self._queue.choose(self._holds, self._queue.owners())
            if owner is None:
                return
            ticket, turn = next(self._queue.of(owner))
            self._queue.served(owner, ticket)
            # A waiter whose task has just been cancelled is skipped.
            if not turn.done():
                self._headed = True
                turn.set_result(None)
