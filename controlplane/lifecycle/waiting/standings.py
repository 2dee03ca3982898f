"""Which starts wait for room at all replicas, and where each stands among its owner's that request the same. Pure.

The records say it: what waits for longer than a moment is noted there, and every replica hears of that.
"""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Final

from controlplane.capacity import meet
from controlplane.lifecycle.deadlines import Deadlines
from controlplane.model import Sandbox

# Of a herd that is refused at one deadline the last one is told that it was the last, not that it was the only one.
LEFT_MS: Final = 10_000
# A start that nobody tells of any more is forgotten so long after its deadline.
SLACK_MS: Final = 60_000

_Line = tuple[str, str]
_Labels = frozenset[tuple[str, str]]


class _Lines:
    """Starts by owner and request, in the order in which they were asked for."""

    def __init__(self) -> None:
        self._rows: dict[_Line, list[tuple[int, str]]] = {}

    def add(self, one: Sandbox) -> None:
        insort(self._rows.setdefault(_line(one), []), (one.created_at_ms, one.id))

    def drop(self, one: Sandbox) -> None:
        row = self._rows[_line(one)]
        row.remove((one.created_at_ms, one.id))
        if not row:
            del self._rows[_line(one)]

    def before(self, one: Sandbox) -> tuple[int, int]:
        """How many of its line came before it, and how many the line has."""
        row = self._rows.get(_line(one), [])
        return bisect_left(row, (one.created_at_ms, one.id)), len(row)


class Standings:
    """Times are Unix ms and passed by the caller."""

    def __init__(self) -> None:
        self._waiting: dict[str, Sandbox] = {}
        self._expiring = Deadlines()
        self._left: dict[str, tuple[int, Sandbox]] = {}  # by key or id: refused for want of room a moment ago
        self._lines, self._past = _Lines(), _Lines()
        self._wanted: Counter[_Labels] = Counter()  # node selectors of creates that wait

    def __contains__(self, sandbox_id: str) -> bool:
        return sandbox_id in self._waiting

    def all(self) -> Collection[Sandbox]:
        """All that wait."""
        return self._waiting.values()

    def add(self, one: Sandbox) -> None:
        """A start waits; success if that is known."""
        if one.id in self._waiting:
            return
        self._waiting[one.id] = one
        self._expiring.put(one.id, one.start_by_ms)
        self._lines.add(one)
        if not one.unclaimed:
            self._wanted[_labels(one.spec.node_selector)] += 1
        self._forget(_ident(one))

    def drop(self, sandbox_id: str) -> None:
        """A start waits no more; success if it did not."""
        if (one := self._waiting.pop(sandbox_id, None)) is None:
            return
        self._expiring.discard(sandbox_id)
        self._lines.drop(one)
        if not one.unclaimed:
            labels = _labels(one.spec.node_selector)
            self._wanted[labels] -= 1
            if not self._wanted[labels]:
                del self._wanted[labels]

    def refuse(self, one: Sandbox, now_ms: int) -> None:
        """A start is refused: it counts for a moment more in what others of its line are told when they are."""
        self.drop(one.id)
        self.tidy(now_ms)
        self._forget(_ident(one))
        self._left[_ident(one)] = (now_ms, one)
        self._past.add(one)

    def number(self, one: Sandbox, now_ms: int, *, refused: bool = False) -> tuple[int, int]:
        """Its number among those of its owner that wait for the same, from 1, and how many these are with it.

        Args:
            one: a start, whether it waits or not.
            now_ms: the time.
            refused: with those that were refused a moment ago.
        """
        before, count = self._lines.before(one)
        count += one.id not in self._waiting
        if refused:
            self.tidy(now_ms)
            gone_before, gone = self._past.before(one)
            before, count = before + gone_before, count + gone - (_ident(one) in self._left)
        return before + 1, count

    def wanted(self, selector: Mapping[str, str]) -> bool:
        """Whether a create waits that may come to nodes with these labels. Cost: O(selectors of creates that wait)."""
        return any(meet(selector, dict(labels)) for labels in self._wanted)

    def tidy(self, now_ms: int) -> None:
        """Forgets what was refused some time ago, and what should long be over."""
        while self._left and not 0 <= now_ms - next(iter(self._left.values()))[0] < LEFT_MS:
            self._forget(next(iter(self._left)))
        for sandbox_id in self._expiring.due(now_ms - SLACK_MS):
            self.drop(sandbox_id)

    def _forget(self, ident: str) -> None:
        if (gone := self._left.pop(ident, None)) is not None:
            self._past.drop(gone[1])


def _ident(one: Sandbox) -> str:
    """A create that is repeated with its key is the same one."""
    return one.id if one.idempotency_key is None else f"{one.owner}\n{one.idempotency_key}"


def _line(one: Sandbox) -> _Line:
    return one.owner, one.spec.placement_key()


def _labels(selector: Mapping[str, str]) -> _Labels:
    return frozenset(selector.items())
