"""Start slots: limit concurrent starts, in all and on each node. Pure; the caller passes the time.

The scheduler chooses a sandbox's node only after its pod was created, so a node's limit cannot be checked before. The
rule:

* In all there are ``limit`` slots: the sum of the ready nodes' limits, or the setting if that is lower.
* A node is crowded if it is at its limit, or if it is slow (it has starts, and all of them came more than ``SLOW_MS``
  ago) and the starts without a node could bring it to its limit. Starts avoid crowded nodes (``Slot.avoid``, a
  preference), and neither crowded nor slow nodes hold others back. So a node on which starts wait for an image does
  not slow down those for other nodes.
* No slot is given while the starts without a node, if all of them were placed on the busiest of the nodes that are not
  avoided, would reach its limit. So where the scheduler can fulfil the preferences, no node gets more than its limit.
* Whether other nodes have room is seen only when a start that avoids nodes is placed. So of these, one at a time goes
  without a node for each ``placement_key``, and one more for each that was placed as preferred; and no more than would
  bring a node to twice its limit. When one comes to a node that it should avoid, it is one at a time again. If that
  brings the node over its limit (counting the starts without a node that do not avoid it, which may follow), then for
  all keys, and the starts that the scheduler cannot distinguish from it (those of its key) are held until that node is
  below its limit again.

So where only crowded nodes have room, a node gets one start too many for each placement key in use; where other nodes
have just run out of room, at most as many again as its limit, and one for each key. A start that fits on no node has no
slot; when the scheduler places it, it gets one without a check, since it cannot be stopped then.

Which replica asks next: one that was refused, or that has more starts than there were slots, is wanting. When something
changes, the rule is applied to what the wanting replicas would ask for, the one that asked longest ago first. Each that
would get a slot is woken, and a slot is kept for it, since others may ask meanwhile.
"""

from collections import Counter
from dataclasses import dataclass, replace
from typing import Final

from controlplane.store.protocol import Slot

# A start on a node that has its image takes one or two seconds. `lua/take_slot.lua` has the same number.
SLOW_MS: Final = 5_000
# What is kept for a replica that is woken: longer than its question is on its way. `lua/head.lua` has both numbers.
KEPT_MS: Final = 250
# A replica that still wants a slot asks again every second.
WANTING_MS: Final = 2_500


@dataclass(frozen=True, slots=True)
class _Wanting:
    """What a replica would ask for."""

    replica: str
    limit: int
    per_node: int
    placement_key: str

    @property
    def text(self) -> str:
        """As Redis has it."""
        return f"{self.replica}\n{self.limit}\n{self.per_node}\n{self.placement_key}"


@dataclass(frozen=True, slots=True)
class _Placed:
    node: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class _Preference:
    placement_key: str
    avoid: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Load:
    """What is under way, without the start that asks.

    Attributes:
        starts: how many starts each node has.
        unplaced: how many starts have no node.
        slow: the nodes all of whose starts came more than ``SLOW_MS`` ago.
    """

    starts: Counter[str]
    unplaced: int
    slow: frozenset[str]

    def crowded(self, per_node: int) -> tuple[str, ...]:
        """The nodes to avoid, in order."""
        full = (node for node, count in self.starts.items() if count + self._coming(node) >= per_node)
        return tuple(sorted(full))

    def settled(self, per_node: int) -> bool:
        """Whether no node is at its limit, and none is slow."""
        return not self.slow and max(self.starts.values(), default=0) < per_node

    def fills_a_node(self, per_node: int, avoid: tuple[str, ...]) -> bool:
        """Whether the starts without a node could bring one that nobody avoids to its limit."""
        others = (count for node, count in self.starts.items() if node not in avoid and node not in self.slow)
        return self.unplaced + max(others, default=0) >= per_node

    def doubles_a_node(self, per_node: int) -> bool:
        """Whether the starts without a node could bring one to twice its limit."""
        return self.unplaced + max(self.starts.values(), default=0) >= 2 * per_node

    def _coming(self, node: str) -> int:
        return self.unplaced if node in self.slow else 0


class Slots:
    """The slots in memory; ``lua/take_slot.lua`` and ``lua/place_slot.lua`` do the same in Redis."""

    def __init__(self) -> None:
        self._until: dict[str, int] = {}  # id -> when its slot expires
        self._placed: dict[str, _Placed] = {}  # of starts that have a slot
        self._preferences: dict[str, _Preference] = {}  # of starts that have a slot, avoid nodes, and have no node
        self._fulfilled: Counter[str] = Counter()  # placement key -> such starts placed as preferred, one after another
        self._held: dict[str, str] = {}  # placement key -> the full node on which such a start was placed
        self._wanting: dict[_Wanting, int] = {}  # when each asked (Unix ms)

    def __len__(self) -> int:
        return len(self._until)

    def take(
        self,
        sandbox_id: str,
        limit: int,
        until_ms: int,
        now_ms: int,
        *,
        per_node: int = 0,
        placement_key: str = "",
        replica: str = "",
        more: bool = False,
    ) -> Slot:
        """See ``Store.take_slot``.

        Args:
            sandbox_id: as there.
            limit: as there.
            until_ms: as there.
            now_ms: Unix time; slots that are due by then are freed first.
            per_node: as there.
            placement_key: as there.
            replica: asks; empty: there is only one, which is not woken.
            more: as there.
        """
        self._lapse(now_ms)
        self.free(_kept(replica))
        wanting = _Wanting(replica, limit, per_node, placement_key)
        self._wanting.pop(wanting, None)
        slot = self._answer(sandbox_id, wanting, now_ms)
        if slot:
            self._until[sandbox_id] = until_ms
            self._preferences.pop(sandbox_id, None)
            if slot.avoid and sandbox_id not in self._placed:
                self._preferences[sandbox_id] = _Preference(placement_key, slot.avoid)
            slot = replace(slot, last=more and not self._answer("", wanting, now_ms))
        if replica and (slot.last or not slot):
            self._wanting[wanting] = now_ms
        return slot

    def wake(self, now_ms: int) -> list[tuple[str, str]]:
        """The replicas that may have a slot now, and for which placement key; one is kept for each of them.

        Args:
            now_ms: Unix time.
        """
        if not self._wanting:
            return []
        self._lapse(now_ms)
        woken = []
        for wanting, at_ms in sorted(self._wanting.items(), key=lambda one: (one[1], one[0].text)):
            if now_ms - at_ms >= WANTING_MS:
                del self._wanting[wanting]
            elif self._answer("", wanting, now_ms):
                del self._wanting[wanting]
                self._until[_kept(wanting.replica)] = now_ms + KEPT_MS
                woken.append((wanting.replica, wanting.placement_key))
        return woken

    def place(
        self, sandbox_id: str, node: str, until_ms: int, now_ms: int, *, per_node: int = 0, placement_key: str = ""
    ) -> None:
        """See ``Store.place_slot``.

        Args:
            sandbox_id: as there.
            node: as there.
            until_ms: as there.
            now_ms: Unix time; a node to which no start has come for a while is slow.
            per_node: as there.
            placement_key: as there.
        """
        sent, preference = sandbox_id in self._until, self._preferences.pop(sandbox_id, None)
        self._until[sandbox_id] = until_ms
        if sandbox_id not in self._placed or self._placed[sandbox_id].node != node:
            self._placed[sandbox_id] = _Placed(node, now_ms)
        # Not for a start that had no slot (it fitted on no node until one was added): the next ones may fit elsewhere.
        if sent and per_node and self._may_have(node) > per_node:
            self._held[placement_key] = node
            self._fulfilled.clear()
        elif preference is not None and node in preference.avoid:
            del self._fulfilled[placement_key]
        elif preference is not None:
            self._fulfilled[placement_key] += 1

    def free(self, sandbox_id: str) -> None:
        """See ``Store.free_slot``."""
        self._until.pop(sandbox_id, None)
        self._placed.pop(sandbox_id, None)
        self._preferences.pop(sandbox_id, None)

    def clear(self) -> None:
        """Drops all slots."""
        self._until.clear()
        self._placed.clear()
        self._preferences.clear()
        self._fulfilled.clear()
        self._held.clear()
        self._wanting.clear()

    def _lapse(self, now_ms: int) -> None:
        for lapsed in [one for one, lapses_ms in self._until.items() if lapses_ms <= now_ms]:
            self.free(lapsed)

    def _answer(self, sandbox_id: str, asked: _Wanting, now_ms: int) -> Slot:
        """What a start would be answered; the id is empty for one that is not known yet."""
        limit, per_node, key = asked.limit, asked.per_node, asked.placement_key
        new = sandbox_id not in self._until
        if new and len(self._until) >= limit:
            return Slot(taken=False)
        if not per_node:
            return Slot(taken=True)
        load = self._load(sandbox_id, now_ms)
        avoid = load.crowded(per_node)
        if load.settled(per_node):
            self._fulfilled.clear()
        if new and (held_by := self._held_by(key, per_node)):
            return Slot(taken=False, held_by=held_by)
        if new and load.unplaced and load.fills_a_node(per_node, avoid):
            return Slot(taken=False)
        if new and load.unplaced and avoid and not self._may_avoid(load, limit, per_node, avoid, key):
            return Slot(taken=False)
        return Slot(taken=True, avoid=avoid)

    def _load(self, sandbox_id: str, now_ms: int) -> _Load:
        unplaced = len(self._until.keys() - self._placed.keys() - {sandbox_id})
        starts = Counter(one.node for one in self._placed.values())
        lively = {one.node for one in self._placed.values() if now_ms - one.at_ms <= SLOW_MS}
        return _Load(starts, unplaced, frozenset(starts.keys() - lively))

    def _may_avoid(self, load: _Load, limit: int, per_node: int, avoid: tuple[str, ...], placement_key: str) -> bool:
        """Whether one more start may be sent that avoids nodes, beside others without a node."""
        nodes = -(-limit // per_node)
        unplaced = sum(one.placement_key == placement_key for one in self._preferences.values())
        somewhere = len(avoid) < nodes and not load.doubles_a_node(per_node)
        return somewhere and unplaced <= self._fulfilled[placement_key]

    def _may_have(self, node: str) -> int:
        """How many starts the node has, and those without a node that do not avoid it."""
        here = sum(one.node == node for one in self._placed.values())
        unplaced = self._until.keys() - self._placed.keys()
        return here + len(unplaced) - sum(node in one.avoid for one in self._preferences.values())

    def _held_by(self, placement_key: str, per_node: int) -> str:
        node = self._held.get(placement_key, "")
        if node and self._may_have(node) < per_node:
            del self._held[placement_key]
            return ""
        return node


def _kept(replica: str) -> str:
    """The id by which a slot is kept for a replica."""
    return f"kept:{replica}"
