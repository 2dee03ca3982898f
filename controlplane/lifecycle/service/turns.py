"""``Turns``: how many at once, and whose turn it is among owners."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from itertools import count
from typing import Final

from controlplane.errors import Problem
from controlplane.lifecycle.waiting.fair_queue import FairQueue

# Of one owner; a data set sends its builds a few at a time.
MOST_WAITING: Final = 1000
TELL_EVERY_S: Final = 1.0


class Turns:
    """So many at once, fair between owners.

    Args:
        most: at once, of all owners.
    """

    def __init__(self, most: int) -> None:
        self._free = most
        self._held: Counter[str] = Counter()
        self._waiting: FairQueue[asyncio.Future[None]] = FairQueue()
        self._tickets = count()

    async def wait(self, owner: str) -> AsyncGenerator[int, None]:
        """Waits for a turn; tells the place in the line of the owner's own, from 1, each second. Ends with the turn.

        Whoever has heard the end calls ``leave``.

        Raises:
            Problem: rate_limited: too many of the owner's wait already.
        """
        if self._waiting.waiting(owner) >= MOST_WAITING:
            raise Problem("rate_limited", f"{owner} has {MOST_WAITING} builds that wait: send the next ones later")
        ticket, turn = next(self._tickets), asyncio.get_running_loop().create_future()
        self._waiting.join(owner, ticket, turn)
        has = False
        try:
            self._give()
            while not turn.done():
                yield self._waiting.position(owner, ticket)
                await asyncio.wait([turn], timeout=TELL_EVERY_S)
            has = True
        finally:
            if not has and not self._waiting.leave(owner, ticket):
                self.leave(owner)

    def leave(self, owner: str) -> None:
        """Gives a turn back."""
        self._free += 1
        self._held[owner] -= 1
        self._give()

    def _give(self) -> None:
        while self._free and (owner := self._waiting.choose(lambda one: self._held[one], self._waiting.owners())):
            ticket, turn = next(self._waiting.of(owner))
            self._waiting.served(owner, ticket)
            self._free -= 1
            self._held[owner] += 1
            turn.set_result(None)
