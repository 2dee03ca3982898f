"""Nodes, which of them a start may come to, and what is free on each."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from controlplane.capacity.amounts import Amounts

Selector = Mapping[str, str]
ANY_SLOTS: Final = 1 << 50
# Of ``NodeRoom.closed``: nothing else keeps starts off the node.
CORDONED: Final = "is cordoned"
ANYWHERE: Final[Collection[str]] = frozenset()


def meet(one: Selector, other: Selector) -> bool:
    """Whether one node may have the labels of both."""
    return all(one.get(key, value) == value for key, value in other.items())


@dataclass(frozen=True, slots=True)
class NodeRoom:
    """A node.

    Attributes:
        allocatable: what pods may request there.
        closed: why it takes no start now; empty: it takes some.
        slots: how many sandboxes it takes at most, besides what else bounds them.
    """

    name: str
    allocatable: Amounts
    labels: Mapping[str, str] = field(default_factory=dict)
    closed: str = ""
    slots: int = ANY_SLOTS

    def takes(self, selector: Selector, off: Collection[str] = ANYWHERE) -> bool:
        """Whether a start may come to it.

        Args:
            selector: the start's node selector.
            off: nodes that the start may not come to in spite of their labels.
        """
        return not self.closed and self.name not in off and (not selector or self.labelled(selector))

    def labelled(self, selector: Selector) -> bool:
        """Whether it has these labels."""
        return all(self.labels.get(key) == value for key, value in selector.items())


@dataclass(frozen=True, slots=True)
class Free:
    """What is free on a node.

    Attributes:
        free: its allocatable less what its pods and reservations request; negative where more is requested.
        reserved: for starts whose pods are not seen on a node yet.
        sandboxes: how many of the installation's are there.
        pods: how many pods are there, sandboxes included.
    """

    node: NodeRoom
    free: Amounts
    reserved: Amounts
    sandboxes: int
    pods: int
