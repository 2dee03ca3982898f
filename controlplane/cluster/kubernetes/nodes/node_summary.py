"""``NodeSummary``: what creates and starts ask of all nodes, worked out once for each change of a node."""

from collections.abc import Callable, Sequence

from controlplane.cluster.kubernetes.nodes.nodes import Fleet, Node
from controlplane.model import SandboxSpec


class NodeSummary:
    """The nodes that sandboxes may run on, as they are now.

    Args:
        fleet: says which these are.
        nodes: all nodes; the same object as long as none has changed.
        may_come: nodes that are not there yet and can be added.
    """

    def __init__(self, fleet: Fleet, nodes: Callable[[], Sequence[Node]], may_come: Sequence[Node] = ()) -> None:
        self._fleet = fleet
        self._nodes = nodes
        self._may_come = may_come
        self._seen: Sequence[Node] | None = None
        self._eligible: Sequence[Node] = ()
        self._with_coming: Sequence[Node] = ()
        self._lasting: Sequence[Node] = ()
        self._ready = 0

    @property
    def eligible(self) -> Sequence[Node]:
        """The nodes that sandboxes may run on, ready or not. Cost: nothing, as long as no node has changed."""
        self._look()
        return self._eligible

    @property
    def ready(self) -> int:
        """How many nodes can take a start now. Cost: as ``eligible``."""
        self._look()
        return self._ready

    def check(self, spec: SandboxSpec) -> None:
        """See ``Fleet.check``; what fits on a node that may come is not refused."""
        self._look()
        self._fleet.check_among(spec, self._with_coming, self._lasting)

    def _look(self) -> None:
        nodes = self._nodes()
        if nodes is self._seen:
            return
        everything = (*nodes, *self._may_come)
        self._eligible = self._fleet.eligible(nodes)
        self._with_coming, self._lasting = self._fleet.eligible(everything), self._fleet.lasting(everything)
        self._ready = self._fleet.ready(nodes)
        self._seen = nodes
