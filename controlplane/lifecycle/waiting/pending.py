"""Starts whose pods are Pending: they went on without room, or the scheduler refuses them. Pure.

When room comes it is for them first: they have pods, so the scheduler places them before what comes later. A start for
which there is room by the platform's arithmetic, and which the scheduler does not place, keeps that room from nobody.
"""

from collections.abc import Iterator
from typing import Final

from controlplane.lifecycle.waiting.ticket import Ticket

# The scheduler looks at a Pending pod again within seconds after a node has come.
PROMISE_MS: Final = 10_000


class Pending:
    """The starts of one replica that have pods which fit nowhere.

    Args:
        most: how many there may be, but for one of each owner and kind of request; 0: no node can be added.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._starts: dict[str, Ticket] = {}
        self._promised: dict[str, int] = {}  # until when room is kept for them (Unix ms); 0: it is not any more

    def __len__(self) -> int:
        return len(self._starts)

    @property
    def none_may_be(self) -> bool:
        """Whether no node can be added, so that a pod which fits nowhere is of use to nobody."""
        return self._most == 0

    def __contains__(self, sandbox_id: str) -> bool:
        return sandbox_id in self._starts

    def takes(self, start: Ticket) -> bool:
        """Whether a start may have a pod that fits nowhere, in spite of those that have one.

        Of pools one of each kind of request may: an autoscaler hears of it, and no create finds a herd before it.
        One of each owner may in any case, and one of each kind of request while there are fewer than twice as many as
        there may be: an autoscaler hears of everybody.
        """
        others = self._starts.values()
        if start.sandbox.id in self._starts:
            return True
        if start.sandbox.unclaimed:
            return self._most > 0 and not any(one.sandbox.unclaimed and one.key == start.key for one in others)
        if len(self._starts) < self._most:
            return True
        return self._most > 0 and (
            all(one.sandbox.owner != start.sandbox.owner for one in others)
            or (len(self._starts) < 2 * self._most and all(one.key != start.key for one in others))
        )

    def add(self, start: Ticket, *, keeps_room: bool = True) -> None:
        """Adds a start.

        Args:
            start: has a pod, or will have one.
            keeps_room: room that comes may be for it; False: the scheduler refuses it in spite of room.
        """
        self._starts[start.sandbox.id] = start
        if not keeps_room:
            self._promised[start.sandbox.id] = 0

    def discard(self, sandbox_id: str) -> None:
        """Removes a start that is placed or over; success if it is not there."""
        self._starts.pop(sandbox_id, None)
        self._promised.pop(sandbox_id, None)

    def unpromised(self) -> Iterator[Ticket]:
        """Those for which no room has been kept yet, oldest first."""
        return (one for sandbox_id, one in list(self._starts.items()) if sandbox_id not in self._promised)

    def unkept(self) -> Iterator[Ticket]:
        """Those for which no room is kept now, oldest first."""
        return (one for sandbox_id, one in list(self._starts.items()) if not self._promised.get(sandbox_id))

    def promise(self, start: Ticket, now_ms: int) -> None:
        """Takes in that room is kept for a start from now on."""
        self._promised[start.sandbox.id] = now_ms + PROMISE_MS

    def expired(self, now_ms: int) -> list[str]:
        """Those for which room has been kept in vain, each once."""
        over = [sandbox_id for sandbox_id, until_ms in self._promised.items() if 0 < until_ms <= now_ms]
        self._promised.update(dict.fromkeys(over, 0))
        return over
