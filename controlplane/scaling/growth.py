"""What will be asked for until a node is there, if it goes on as it does. Pure.

A burst that comes at once asks for nothing more than itself: it grows in one interval. What counts is growth that
lasts, the least of the last intervals. So a herd that builds up has its nodes asked for ahead, and one create of four
thousand does not double the cluster.
"""

from collections import deque
from collections.abc import Mapping
from typing import Final

from controlplane.scaling.kinds import MOST_KINDS, Kind

INTERVAL_MS: Final = 10_000
INTERVALS: Final = 3


class Growth:
    """How many sandboxes of each kind there were."""

    def __init__(self) -> None:
        self._seen: deque[tuple[int, Mapping[Kind, int]]] = deque()

    def see(self, live: Mapping[Kind, int], now_ms: int) -> None:
        """Takes in how many there are now, starting ones included."""
        while self._seen and self._seen[-1][0] > now_ms:
            self._seen.pop()
        if not self._seen or now_ms - self._seen[-1][0] >= INTERVAL_MS:
            self._seen.append((now_ms, dict(live)))
        while len(self._seen) > INTERVALS + 1:
            self._seen.popleft()

    def ahead(self, within_ms: int) -> Mapping[Kind, int]:
        """How many more of each kind there will be within a time."""
        if len(self._seen) <= INTERVALS:
            return {}
        steps = [
            (after[0] - before[0], before[1], after[1])
            for before, after in zip(self._seen, [*self._seen][1:], strict=False)
        ]
        found: dict[Kind, int] = {}
        for kind in self._seen[-1][1]:
            per_ms = min((after.get(kind, 0) - before.get(kind, 0)) / took_ms for took_ms, before, after in steps)
            if (count := int(per_ms * within_ms)) > 0:
                found[kind] = count
        most = sorted(found, key=lambda one: -found[one])[:MOST_KINDS]
        return {kind: found[kind] for kind in most}
