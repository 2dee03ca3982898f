"""A queue that is fair between owners. Pure.

Three turns of four go to the owner that holds least, so that many waiters of one owner do not block the few of another.
The fourth goes to the waiter that came first, so that none starves while other owners hold less and keep coming.
"""

from bisect import insort
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

# Every so many turns the waiter that came first has its turn, however much its owner holds.
OLDEST_EVERY: Final = 4

T = TypeVar("T")


@dataclass(slots=True)
class _Row(Generic[T]):
    tickets: list[int] = field(default_factory=list)  # ascending
    waiters: dict[int, T] = field(default_factory=dict)


class FairQueue(Generic[T]):
    """Waiters by owner and ticket; a smaller ticket came earlier."""

    def __init__(self) -> None:
        self._rows: dict[str, _Row[T]] = {}
        self._turns = 0
        self._waiting = 0

    def __len__(self) -> int:
        return self._waiting

    def join(self, owner: str, ticket: int, waiter: T) -> None:
        """Adds a waiter behind all of its owner's with smaller tickets; no two waiters have the same ticket."""
        row = self._rows.setdefault(owner, _Row())
        insort(row.tickets, ticket)
        row.waiters[ticket] = waiter
        self._waiting += 1

    def leave(self, owner: str, ticket: int) -> bool:
        """Removes a waiter, wherever it stands; whether it was there. Cost: O(n) in its owner's waiters."""
        row = self._rows.get(owner)
        if row is None or row.waiters.pop(ticket, None) is None:
            return False
        row.tickets.remove(ticket)
        self._waiting -= 1
        if not row.tickets:
            del self._rows[owner]
        return True

    def owners(self) -> Collection[str]:
        """The owners that have waiters."""
        return self._rows.keys()

    def waiting(self, owner: str) -> int:
        """How many waiters this owner has."""
        row = self._rows.get(owner)
        return 0 if row is None else len(row.tickets)

    def of(self, owner: str) -> Iterator[tuple[int, T]]:
        """Ticket and waiter of each of this owner's, in order."""
        row = self._rows.get(owner)
        return iter(()) if row is None else ((ticket, row.waiters[ticket]) for ticket in row.tickets)

    def first(self, owner: str) -> T:
        """The owner's next waiter; ``KeyError`` when it has none."""
        row = self._rows[owner]
        return row.waiters[row.tickets[0]]

    def position(self, owner: str, ticket: int) -> int:
        """The position of a waiter among its owner's, from 1; 0 when it does not wait."""
        row = self._rows.get(owner)
        return row.tickets.index(ticket) + 1 if row is not None and ticket in row.waiters else 0

    def choose(self, share: Callable[[str], float], among: Collection[str]) -> str | None:
        """The owner whose first waiter has the next turn; None when no owner in ``among`` has waiters.

        Args:
            share: how much an owner holds, relative to what it may hold.
            among: the owners that can use a turn now.
        """
        ready = [owner for owner in among if owner in self._rows]
        if not ready:
            return None
        if (self._turns + 1) % OLDEST_EVERY == 0:
            return min(ready, key=self._came)
        return min(ready, key=lambda owner: (share(owner), self._came(owner)))

    def served(self, owner: str, ticket: int) -> None:
        """Removes a waiter that has had its turn."""
        if self.leave(owner, ticket):
            self._turns += 1

    def _came(self, owner: str) -> int:
        return self._rows[owner].tickets[0]
