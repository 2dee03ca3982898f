"""The lines of starts that wait for room: one for each kind of request, each fair between owners. Pure."""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from heapq import nsmallest
from itertools import islice
from typing import Final

from controlplane.capacity import Amounts
from controlplane.errors import Problem
from controlplane.lifecycle.fair_queue import FairQueue
from controlplane.model import Sandbox

# Kinds of requests that are looked at in one turn; the next turn looks at the others first.
MOST_KINDS: Final = 64
# A caller that is refused is not asked to come back earlier, or later; the other one is for a pace that is not known.
LEAST_RETRY_MS: Final = 1_000
RETRY_MS: Final = 5_000
LONGEST_RETRY_MS: Final = 60_000


@dataclass(frozen=True, slots=True)
class RoomPlace:
    """Where a start stands that waits for room.

    Attributes:
        position: among its owner's at all replicas that request the same, from 1, of ``waiting``.
        estimate_ms: how long it will still wait, by the pace of the last ones; None: not known.
        why: what the nodes have left.
    """

    sandbox: Sandbox
    position: int
    waiting: int
    estimate_ms: int | None
    why: str

    def problem(self) -> Problem:
        """Why it waits."""
        where = f"it is number {self.position} of {self.waiting} of {self.sandbox.owner} that wait for such room"
        return self._problem(f"no node has room for it now: {self.why}; {where}")

    def refused(self, now_ms: int) -> Problem:
        """What its caller is told at its deadline; a client that sees how long it has waited does not ask again."""
        where = f"it was number {self.position} of {self.waiting} of {self.sandbox.owner} that waited for such room"
        within = f"within its start timeout of {self.sandbox.asked_start_ms / 1000:g} s"
        waited_ms = max(0, now_ms - self.sandbox.created_at_ms)
        return self._problem(f"no node has room for it {within}: {self.why}; {where}", waited_ms=waited_ms)

    def _problem(self, detail: str, **details: int) -> Problem:
        retry_ms = RETRY_MS if self.estimate_ms is None else self.estimate_ms
        return Problem(
            "capacity_unavailable",
            detail,
            retry_after_ms=min(max(LEAST_RETRY_MS, retry_ms), LONGEST_RETRY_MS),
            position=self.position,
            waiting=self.waiting,
            sandbox_id=self.sandbox.id,
            **details,
        )


@dataclass(frozen=True, slots=True)
class Waiter:
    """A start that waits, or asks whether it may go on.

    Attributes:
        ticket: a smaller one came earlier.
        lazily: its node mounts its image lazily, which not all nodes may do.
    """

    sandbox: Sandbox
    request: Amounts
    ticket: int
    lazily: bool = False

    @property
    def key(self) -> str:
        """What has to be equal for two starts to fit the same nodes."""
        key = self.sandbox.spec.placement_key()
        return f"{key}/lazily" if self.lazily else key

    @property
    def line(self) -> tuple[bool, str]:
        """Its line; those of pools' starts are behind all others."""
        return self.sandbox.unclaimed, self.key


class RoomLines:
    """Waiters by their line.

    Attributes:
        unfinished: some kinds have not been looked at since ``take`` found one that goes.

    Args:
        holds: how many sandboxes an owner has.
    """

    def __init__(self, holds: Callable[[str], int]) -> None:
        self._holds = holds
        self._lines: dict[tuple[bool, str], FairQueue[Waiter]] = {}
        self._in_vain: set[tuple[bool, str]] = set()  # lines of which none went when they were looked at, this round
        self.unfinished = False

    def __len__(self) -> int:
        return sum(len(line) for line in self._lines.values())

    def hold_back(self, one: Waiter) -> bool:
        """Whether a new start would pass others that request the same."""
        return (False, one.key) in self._lines or one.line in self._lines

    def join(self, one: Waiter) -> None:
        """Adds a waiter, behind those of its owner with smaller tickets."""
        self._lines.setdefault(one.line, FairQueue()).join(one.sandbox.owner, one.ticket, one)

    def leave(self, one: Waiter) -> None:
        """Removes a waiter; success if it is not there."""
        if (line := self._lines.get(one.line)) is not None:
            line.leave(one.sandbox.owner, one.ticket)
            self._tidy(one)

    def take(self, goes: Callable[[Waiter], bool]) -> Waiter | None:
        """Removes and returns the next waiter that ``goes``; None: none does.

        Of each line its fair one is asked: of these first that of the owner that has least, and pools' last; and where
        it does not go, the one of the line's owner that has least. At most ``MOST_KINDS`` are asked in vain; the next
        call goes on with the others, so many kinds that fit nowhere block nobody.
        """
        heads = [one for line in self._lines.values() if (one := self._head(line)) is not None]
        heads.sort(key=lambda one: (one.sandbox.unclaimed, self._holds(one.sandbox.owner), one.ticket))
        unseen = [one for one in heads if one.line not in self._in_vain]
        for head in unseen[:MOST_KINDS]:
            for one in self._candidates(head):
                if goes(one):
                    self._lines[one.line].served(one.sandbox.owner, one.ticket)
                    self._tidy(one)
                    return one
            self._in_vain.add(head.line)
        self.unfinished = len(unseen) > MOST_KINDS
        if not self.unfinished:
            self._in_vain.clear()
        return None

    def all(self) -> Collection[Waiter]:
        """All waiters, oldest first."""
        every = (one for line in self._lines.values() for owner in line.owners() for _, one in line.of(owner))
        return sorted(every, key=lambda one: one.ticket)

    def claimed(self, most: int) -> Collection[Waiter]:
        """The oldest waiters that owners wait for, at most so many. Cost: O(lines and owners)."""
        owners = (
            (line, owner) for (unclaimed, _), line in self._lines.items() if not unclaimed for owner in line.owners()
        )
        firsts = (one for line, owner in owners for _, one in islice(line.of(owner), most))
        return nsmallest(most, firsts, key=lambda one: one.ticket)

    def _head(self, line: FairQueue[Waiter]) -> Waiter | None:
        owner = line.choose(self._holds, line.owners())
        return None if owner is None else line.first(owner)

    def _candidates(self, head: Waiter) -> Iterator[Waiter]:
        yield head
        line = self._lines[head.line]
        least = line.first(min(line.owners(), key=self._holds))
        if least is not head:
            yield least

    def _tidy(self, one: Waiter) -> None:
        if not len(self._lines[one.line]):
            del self._lines[one.line]
