"""``Placements``: which nodes take how many sandboxes, of a backend that has more than one."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from controlplane.capacity import Amounts, Room
from controlplane.cluster.drains import NodeDrains
from controlplane.model import SandboxSpec


@dataclass(frozen=True, slots=True)
class Placement:
    """The node that the cluster's scheduler has chosen for a sandbox.

    Attributes:
        node: empty: the sandbox fits on no node at present.
        why: the scheduler's reason, if it fits on none; the node's, if that has turned it away.
        turned_away_by: the node that the scheduler had chosen, and that has refused it; ``node`` is empty then.
    """

    sandbox_id: str
    node: str
    why: str = ""
    turned_away_by: str = ""


class Placements(Protocol):
    """The nodes, as the backend's scheduler sees them."""

    def starts_at_once(self) -> int:
        """How many concurrent starts the Ready nodes allow now; 0 when no node can take one."""
        ...

    @property
    def starts_per_node(self) -> int:
        """How many concurrent starts one node allows; 0: the cluster is one machine and reports no placements."""
        ...

    def placement(self, sandbox_id: str) -> Placement | None:
        """A sandbox's placement by the last event; None: not known, or not started. Cost: no call."""
        ...

    def placements(self) -> AsyncIterator[Placement]:
        """Yields changes of placements, without end, also of other replicas' starts; a sandbox's last one is valid."""
        ...

    @property
    def node_drains(self) -> NodeDrains | None:
        """Which nodes are emptied; None: the cluster is one machine, and stops with all its sandboxes."""
        ...

    @property
    def room(self) -> Room | None:
        """What is free on the nodes, kept current; None: this cluster sets nothing aside for sandboxes. Cost: no call.

        Sandboxes are in it by their ids, once their pods are on nodes.
        """
        ...

    def request(self, spec: SandboxSpec) -> Amounts:
        """What a sandbox requests of its node, with all that the platform adds. Cost: no call."""
        ...

    def holding(self, spec: SandboxSpec, layers: Mapping[str, int]) -> Sequence[str]:
        """The nodes with room for a sandbox that have all of its image already; none: none has, or it is not known.

        Args:
            spec: what it is to be, with the image as nodes pull it.
            layers: of that image, with their bytes; empty: not known.

        Cost: no call; a look at each node.
        """
        ...
