"""Start slots: how many starts go on at once, in all and on each node. Pure; the caller brings the time.

A scheduler says where a sandbox is only after it was sent, so no start can be bounded on its node beforehand. The rule:

* In all there are ``limit`` slots: what the ready nodes bear together, or the setting.
* Nothing is sent while the starts that have no node yet would, if all of them came to the busiest node, be too many
  there. So no node gets more than it bears.
* A node that has as many as it bears is avoided by what is sent (``Slot.avoid``, a preference), one start at a time, so
  that one slow node stops nobody. Where no other node takes that start, it comes there all the same, one too many; then
  all that a scheduler cannot tell from it (its ``placement_key``) is held until that node bears a start again.

So a node has at most one start more than it bears for each placement key that is in use. What was refused by all nodes
has no slot; it takes one when it is placed, without asking, since nobody can stop it any more.
"""

from collections import Counter

from controlplane.store.protocol import Slot


class Slots:
    """What ``lua/take_slot.lua`` and ``lua/place_slot.lua`` do in Redis."""

    def __init__(self) -> None:
        self._until: dict[str, int] = {}  # id -> when it lapses
        self._nodes: dict[str, str] = {}  # id -> where it is; of those that have a slot
        self._held: dict[str, str] = {}  # placement key -> the node that such starts came to although it was full

    def __len__(self) -> int:
        return len(self._until)

    def take(
        self, sandbox_id: str, limit: int, until_ms: int, now_ms: int, *, per_node: int = 0, placement_key: str = ""
    ) -> Slot:
        """See ``Store.take_slot``."""
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
        # Not where many waited for a node and one has come: that says nothing about the next ones.
        if sent and per_node and Counter(self._nodes.values())[node] > per_node:
            self._held[placement_key] = node

    def free(self, sandbox_id: str) -> None:
        """See ``Store.free_slot``."""
        self._until.pop(sandbox_id, None)
        self._nodes.pop(sandbox_id, None)

    def clear(self) -> None:
        """Forgets all."""
        self._until.clear()
        self._nodes.clear()
        self._held.clear()

    def _held_by(self, placement_key: str, starts: Counter[str], per_node: int) -> str:
        node = self._held.get(placement_key, "")
        if node and starts[node] < per_node:
            del self._held[placement_key]
            return ""
        return node
