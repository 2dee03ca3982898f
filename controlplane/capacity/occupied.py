"""``Occupied``: what pods and reservations take of each node, and so what is free there."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from math import inf
from typing import Final

from controlplane.capacity.amounts import CPU, MEMORY, NOTHING, ORDER, PODS, Amounts, fits, minus, plus, times
from controlplane.capacity.nodes import Free, NodeRoom, Selector

_SCORED: Final = (ORDER.index(CPU), ORDER.index(MEMORY))


@dataclass(slots=True)
class Taken:
    """What is taken of a node: by pods, by the sandboxes among them, by reservations."""

    pods: Amounts = NOTHING
    sandboxes: Amounts = NOTHING
    reserved: Amounts = NOTHING

    @property
    def nothing(self) -> bool:
        """Whether nothing is."""
        return self.pods == NOTHING == self.reserved


class Occupied:
    """Nodes, and what is taken of each; what is taken counts also while its node is not known.

    Args:
        packs: the scheduler fills one node after the other, and does not spread.
    """

    def __init__(self, *, packs: bool = False) -> None:
        self._sign = -1 if packs else 1
        self._nodes: dict[str, NodeRoom] = {}
        self._taken: dict[str, Taken] = {}
        self._free: dict[str, Amounts] = {}

    @property
    def nodes(self) -> Mapping[str, NodeRoom]:
        """All nodes, by name."""
        return self._nodes

    def set_node(self, node: NodeRoom) -> bool:
        """Takes in a node; whether it is new or has changed."""
        if self._nodes.get(node.name) == node:
            return False
        self._nodes[node.name] = node
        self._count(node.name)
        return True

    def drop_node(self, name: str) -> None:
        """Takes in that a node is gone."""
        self._nodes.pop(name, None)
        self._free.pop(name, None)

    def change(
        self, node: str, *, pods: Amounts = NOTHING, sandboxes: Amounts = NOTHING, reserved: Amounts = NOTHING
    ) -> None:
        """Adds to what is taken of a node; negative amounts take away.

        Args:
            node: its name.
            pods: of all pods there.
            sandboxes: of the sandboxes among them.
            reserved: of reservations.
        """
        taken = self._taken.setdefault(node, Taken())
        taken.pods = plus(taken.pods, pods)
        taken.sandboxes = plus(taken.sandboxes, sandboxes)
        taken.reserved = plus(taken.reserved, reserved)
        if taken.nothing:
            del self._taken[node]
        self._count(node)

    def open(self, selector: Selector, off: Collection[str]) -> list[NodeRoom]:
        """The nodes that a start may come to; see ``NodeRoom.takes``."""
        return [one for one in self._nodes.values() if one.takes(selector, off)]

    def taken(self, node: str) -> Taken:
        """What is taken of a node."""
        return self._taken.get(node) or Taken()

    def free_of(self, node: str) -> Amounts:
        """What is free on a node that is known."""
        return self._free[node]

    def fit(self, request: Amounts, selector: Selector, off: Collection[str], enough: float = inf) -> int:
        """How many such sandboxes fit now. Cost: O(nodes).

        Args:
            request: what each requests.
            selector: see ``NodeRoom.takes``.
            off: the same.
            enough: counting may end there.
        """
        count = 0
        for one in self._nodes.values():
            if one.takes(selector, off):
                count += times(self._free[one.name], request)
                if count >= enough:
                    break
        return count

    def fit_alone(self, request: Amounts, selector: Selector, off: Collection[str]) -> int:
        """How many fit when no sandbox of this installation runs."""
        count = 0
        for one in self.open(selector, off):
            taken = self.taken(one.name)
            left = minus(one.allocatable, minus(taken.pods, taken.sandboxes))
            count += times((*left[:4], min(left[4], one.slots)), request)
        return count

    def without_slots(self) -> list[str]:
        """Nodes that take no further sandbox for want of slots alone, which no scheduler knows of; by name."""
        return [
            name
            for name, node in sorted(self._nodes.items())
            if node.slots < node.allocatable[-1] and node.slots <= self.taken(name).sandboxes[-1]
        ]

    def takes_in(self, node: str, requests: Amounts) -> bool:
        """Whether it fits beside the pods there; reservations only say where a pod may come to. True: not known."""
        known = self._nodes.get(node)
        if known is None:
            return True
        taken = self.taken(node)
        return taken.sandboxes[-1] < known.slots and fits(minus(known.allocatable, taken.pods), requests)

    def likely(self, request: Amounts, selector: Selector, off: Collection[str]) -> str:
        """The node that the scheduler would most likely choose of those with room: the least allocated; or none.

        Where the scheduler packs, the most allocated.
        """
        best, score = "", -inf
        for one in self.open(selector, off):
            free = self._free[one.name]
            if not fits(free, request):
                continue
            spare = self._sign * sum((free[at] - request[at]) / (one.allocatable[at] or 1) for at in _SCORED)
            if spare > score:
                best, score = one.name, spare
        return best

    def contested(self, request: Amounts, selector: Selector, off: Collection[str]) -> str:
        """Of nodes with too little room: one that only reservations fill, and of these that with the most room."""
        ranked = (
            (self.takes_in(one.name, request), scarcest(self._free[one.name], request)[0], one.name)
            for one in self.open(selector, off)
        )
        return max(ranked, default=(False, 0.0, ""))[2]

    def all(self) -> Iterable[Free]:
        """What is free on each node, by name."""
        for name in sorted(self._nodes):
            taken = self.taken(name)
            yield Free(self._nodes[name], self._free[name], taken.reserved, taken.sandboxes[-1], taken.pods[-1])

    def _count(self, name: str) -> None:
        if (node := self._nodes.get(name)) is not None:
            taken = self.taken(name)
            left = minus(node.allocatable, plus(taken.pods, taken.reserved))
            slots = node.slots - taken.sandboxes[-1] - taken.reserved[-1]
            self._free[name] = (*left[:4], min(left[4], slots))


def scarcest(free: Amounts, request: Amounts) -> tuple[float, str, int]:
    """How often the request fits by the resource of which it fits least often, that resource, and what is free."""
    shares = [(have / want, name, have) for name, have, want in zip(ORDER, free, request, strict=True) if want > 0]
    return min(shares, default=(0.0, PODS, free[-1]))
