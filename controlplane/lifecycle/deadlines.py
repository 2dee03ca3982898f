"""Deadlines by name, in a heap: whatever the order in which they were set, the earliest is found first. Pure."""

import heapq
from collections.abc import Iterator
from typing import Final

# Below this many stale entries the heap is not worth rebuilding.
SLACK_ENTRIES: Final = 1024


class Deadlines:
    """One deadline (Unix ms) for each name."""

    def __init__(self) -> None:
        self._moments: dict[str, int] = {}
        self._heap: list[tuple[int, str]] = []

    def put(self, name: str, at_ms: int) -> None:
        """Sets or moves the deadline of a name. Cost: O(log n)."""
        if self._moments.get(name) == at_ms:
            return
        self._moments[name] = at_ms
        heapq.heappush(self._heap, (at_ms, name))
        self._compact()

    def discard(self, name: str) -> None:
        """Removes the deadline of a name; unknown names are ignored."""
        self._moments.pop(name, None)

    def due(self, now_ms: int) -> Iterator[str]:
        """Removes and yields the names whose deadline has come, the earliest first; others may be set meanwhile."""
        while self._heap and self._heap[0][0] <= now_ms:
            at_ms, name = heapq.heappop(self._heap)
            if self._moments.get(name) == at_ms:
                del self._moments[name]
                yield name

    @property
    def next_ms(self) -> int | None:
        """A moment before which none is due; None: there is none."""
        return self._heap[0][0] if self._heap else None

    def _compact(self) -> None:
        # Names that were removed or moved leave stale entries, which would stay until their time, days ahead.
        if len(self._heap) > 2 * len(self._moments) + SLACK_ENTRIES:
            self._heap = [(at_ms, name) for name, at_ms in self._moments.items()]
            heapq.heapify(self._heap)
