"""What a cluster says of nodes that are emptied, and of its nodes as such."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Drain:
    """A node that is emptied: nothing new starts there, and what is left there ends at a moment.

    Attributes:
        until_ms: when what is left there is ended (Unix ms).
        since_ms: since when it is so (Unix ms), as far as it is known.
        by: an owner that has asked for it; or the mark on the node that says so.
        why: the same for people, as the end of "its node ".
        estimated: whether ``until_ms`` was counted from when the mark was first seen, so that an earlier one is right.
    """

    until_ms: int
    since_ms: int
    by: str
    why: str
    estimated: bool = False


@dataclass(frozen=True, slots=True)
class NodeState:
    """A node that sandboxes may run on.

    Attributes:
        ready: whether its kubelet says so, and the cluster believes it.
        cordoned: whether nothing new is put there.
        trouble: why it is not ready; empty: it is.
        drain: None: it is not emptied.
        max_pods: how many pods of sandboxes it takes at most; 0: not known.
    """

    name: str
    ready: bool
    cordoned: bool = False
    trouble: str = ""
    drain: Drain | None = None
    max_pods: int = 0


class NodeDrains(Protocol):
    """Which nodes are emptied, or do not say anything; and how an operator has one emptied."""

    def nodes(self) -> Sequence[NodeState]:
        """All nodes that sandboxes may run on, by name. Cost: no call."""
        ...

    def draining(self) -> Mapping[str, Drain]:
        """The nodes that are emptied. Cost: no call."""
        ...

    def changes(self) -> AsyncIterator[str]:
        """Yields the names of nodes that begin to be emptied, go on otherwise, or are not emptied any more; endless.

        First those that are emptied already. Several changes of one node may be told once.
        """
        ...

    def silent(self) -> frozenset[str]:
        """Nodes that do not say any more that they are there; what is on them may run on. Cost: no call."""
        ...

    def sandboxes(self, node: str) -> Sequence[str]:
        """The ids of those on a node. Cost: no call, O(sandboxes)."""
        ...

    def knows(self, node: str) -> bool:
        """Whether there is such a node."""
        ...

    async def drain(self, node: str, until_ms: int, by: str) -> None:
        """Cordons a node and has it emptied; a later call sets another deadline.

        Args:
            node: its name.
            until_ms: when what is left there is ended (Unix ms).
            by: who has asked for it.

        Raises:
            Problem: not_found; unsupported: this installation may not change nodes; upstream_timeout.
        """
        ...

    async def undrain(self, node: str) -> None:
        """Ends what ``drain`` has begun, also in the middle; success if it is not emptied.

        Raises:
            Problem: not_found; conflict: something else than ``drain`` has it emptied; unsupported; upstream_timeout.
        """
        ...
