"""Start slots: limit concurrent starts, in all and on each node. Pure; the caller passes the time.

The scheduler chooses a sandbox's node only after its pod was created, so a node's limit cannot be checked before. The
rule:

* In all there are ``limit`` slots: the sum of the ready nodes' limits, or the setting if that is lower.
* No slot is given while the starts without a node, if all of them were placed on the busiest node, would reach its
  limit. So concurrent starts cannot exceed a node's limit.
* A start that gets a slot while some node is at its limit avoids that node (``Slot.avoid``, a preference), and such
  starts are let in one at a time, so that one slow node does not block the others. If no other node has room for the
  start, it is placed on the full node, one over the limit. Then all starts that the scheduler cannot distinguish from
  it (they have the same ``placement_key``) are held until that node is below its limit again.

So a node has at most one start over its limit for each placement key in use. A start that fits on no node has no slot;
when the scheduler places it, it gets one without a check, since it cannot be stopped then.
"""

from collections import Counter

from controlplane.store.protocol import Slot


class Slots:
    """The slots in memory; ``lua/take_slot.lua`` and ``lua/place_slot.lua`` do the same in Redis."""

    def __init__(self) -> None:
        self._until: dict[str, int] = {}  # id -> when its slot expires
        self._nodes: dict[str, str] = {}  # id -> its node; only of starts that have a slot
        self._held: dict[str, str] = {}  # placement key -> the full node on which such a start was placed

    def __len__(self) -> int:
        return len(self._until)

    def take(
        self, sandbox_id: str, limit: int, until_ms: int, now_ms: int, *, per_node: int = 0, placement_key: str = ""
    ) -> Slot:
        """See ``Store.take_slot``.

        Args:
            sandbox_id: as there.
            limit: as there.
            until_ms: as there.
            now_ms: Unix time; slots that are due by then are freed first.
            per_node: as there.
            placement_key: as there.
        """
        for lapsed in [one for one, lapses_ms in self._until.items() if lapses_ms <= now_ms]:
            self.free(lapsed)
        starts = Counter(self._nodes.values())
        if sandbox_id not in self._until:
            if len(self._until) >= limit:
                return Slot(taken=False)
            if per_node and (held_by := self._held_by(placement_key, starts, per_node)):
                return Slot(taken=False, held_by=held_by)
            unplaced = len(self._until) - len(self._nodes)
            if per_node and unplaced and unplaced + max(starts.values(), default=0) >= per_node:
                return Slot(taken=False)
        self._until[sandbox_id] = until_ms
        full = [node for node, count in starts.items() if per_node and count >= per_node]
        return Slot(taken=True, avoid=tuple(sorted(full)))

    def place(self, sandbox_id: str, node: str, until_ms: int, *, per_node: int = 0, placement_key: str = "") -> None:
        """See ``Store.place_slot``."""
        sent = sandbox_id in self._until
        self._until[sandbox_id], self._nodes[sandbox_id] = until_ms, node
        # Not for a start that had no slot (it fitted on no node until one was added): the next ones may fit elsewhere.
        if sent and per_node and Counter(self._nodes.values())[node] > per_node:
            self._held[placement_key] = node

    def free(self, sandbox_id: str) -> None:
        """See ``Store.free_slot``."""
        self._until.pop(sandbox_id, None)
        self._nodes.pop(sandbox_id, None)

    def clear(self) -> None:
        """Drops all slots."""
        self._until.clear()
        self._nodes.clear()
        self._held.clear()

    def _held_by(self, placement_key: str, starts: Counter[str], per_node: int) -> str:
        node = self._held.get(placement_key, "")
        if node and starts[node] < per_node:
            del self._held[placement_key]
            return ""
        return node
