"""A line of which one at a time is at the head; the next one is chosen fairly between owners."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from controlplane.lifecycle.queue.line import Line


class Lane:
    """Waiters and their head.

    Args:
        holds: how much an owner holds of what is waited for.
    """

    def __init__(self, holds: Callable[[str], int]) -> None:
        self._holds = holds
        self._line: Line[asyncio.Future[None]] = Line()
        self._headed = False

    @property
    def empty(self) -> bool:
        """Whether nobody waits, or is at the head."""
        return not self._headed and not len(self._line)

    @asynccontextmanager
    async def at_head(self, owner: str, ticket: int) -> AsyncIterator[None]:
        """Waits for the head of the line and stays there for the block; a smaller ticket came earlier."""
        turn = asyncio.get_running_loop().create_future()
        self._line.join(owner, ticket, turn)
        self._pass_on()
        try:
            await turn
            yield
        finally:
            # Also when it was cancelled in the moment in which its turn came.
            if turn.done() and not turn.cancelled():
                self._headed = False
                self._pass_on()
            else:
                self._line.leave(owner, ticket)

    def _pass_on(self) -> None:
        """Makes the next one the head, if there is none: of the owner that holds least, as a rule."""
        while not self._headed:
            owner = self._line.choose(self._holds, self._line.owners())
            if owner is None:
                return
            ticket, turn = next(self._line.of(owner))
            self._line.served(owner, ticket)
            # One whose caller has just been cancelled is out.
            if not turn.done():
                self._headed = True
                turn.set_result(None)
