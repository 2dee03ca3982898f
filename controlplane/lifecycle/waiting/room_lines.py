"""The lines of starts that wait for room: one for each kind of request, each fair between owners. Pure."""

from collections.abc import Callable, Collection, Iterator
from heapq import nsmallest
from itertools import islice
from typing import Final

from controlplane.lifecycle.waiting.fair_queue import FairQueue
from controlplane.lifecycle.waiting.ticket import Ticket

# Kinds of requests that are looked at in one turn; the next turn looks at the others first.
MOST_KINDS: Final = 64


class RoomLines:
    """Tickets by their line.

    Attributes:
        unfinished: some kinds have not been looked at since ``take`` found one that goes.

    Args:
        holds: how many sandboxes an owner has.
    """

    def __init__(self, holds: Callable[[str], int]) -> None:
        self._holds = holds
        self._lines: dict[tuple[bool, str], FairQueue[Ticket]] = {}
        self._in_vain: set[tuple[bool, str]] = set()  # lines of which none went when they were looked at, this round
        self.unfinished = False

    def __len__(self) -> int:
        return sum(len(line) for line in self._lines.values())

    def hold_back(self, one: Ticket) -> bool:
        """Whether a new start would pass others that request the same."""
        return (False, one.key) in self._lines or one.line in self._lines

    def join(self, one: Ticket) -> None:
        """Adds a waiter, behind those of its owner with smaller tickets."""
        self._lines.setdefault(one.line, FairQueue()).join(one.sandbox.owner, one.number, one)

    def leave(self, one: Ticket) -> None:
        """Removes a waiter; success if it is not there."""
        if (line := self._lines.get(one.line)) is not None:
            line.leave(one.sandbox.owner, one.number)
            self._tidy(one)

    def take(self, goes: Callable[[Ticket], bool]) -> Ticket | None:
        """Removes and returns the next waiter that ``goes``; None: none does.

        Of each line its fair one is asked: of these first that of the owner that has least, and pools' last; and where
        it does not go, the one of the line's owner that has least. At most ``MOST_KINDS`` are asked in vain; the next
        call goes on with the others, so many kinds that fit nowhere block nobody.
        """
        heads = [one for line in self._lines.values() if (one := self._head(line)) is not None]
        heads.sort(key=lambda one: (one.sandbox.unclaimed, self._holds(one.sandbox.owner), one.number))
        unseen = [one for one in heads if one.line not in self._in_vain]
        for head in unseen[:MOST_KINDS]:
            for one in self._candidates(head):
                if goes(one):
                    self._lines[one.line].served(one.sandbox.owner, one.number)
                    self._tidy(one)
                    return one
            self._in_vain.add(head.line)
        self.unfinished = len(unseen) > MOST_KINDS
        if not self.unfinished:
            self._in_vain.clear()
        return None

    def claimed(self, most: int) -> Collection[Ticket]:
        """The oldest waiters that owners wait for, at most so many. Cost: O(lines and owners)."""
        owners = (
            (line, owner) for (unclaimed, _), line in self._lines.items() if not unclaimed for owner in line.owners()
        )
        firsts = (one for line, owner in owners for _, one in islice(line.of(owner), most))
        return nsmallest(most, firsts, key=lambda one: one.number)

    def _head(self, line: FairQueue[Ticket]) -> Ticket | None:
        owner = line.choose(self._holds, line.owners())
        return None if owner is None else line.first(owner)

    def _candidates(self, head: Ticket) -> Iterator[Ticket]:
        yield head
        line = self._lines[head.line]
        least = line.first(min(line.owners(), key=self._holds))
        if least is not head:
            yield least

    def _tidy(self, one: Ticket) -> None:
        if not len(self._lines[one.line]):
            del self._lines[one.line]
