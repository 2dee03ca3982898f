"""``SandboxCounts``: sandboxes by kind, and which are idle or ending, as this replica has heard. Pure."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from controlplane.capacity import Amounts
from controlplane.lifecycle.record.transition import Transition
from controlplane.model import Sandbox, SandboxSpec, State
from controlplane.scaling import Kind


@dataclass(slots=True)
class OnNode:
    """What is on one node.

    Attributes:
        idle: ready sandboxes of pools that nobody has claimed, by kind.
        ending: those that have ended and are not gone.
    """

    idle: Counter[Kind] = field(default_factory=Counter)
    ending: int = 0


class SandboxCounts:
    """Subscribes to the ledger. Cost: O(1) for each transition, O(sandboxes) for each question.

    Args:
        request: what a sandbox requests of its node.
    """

    def __init__(self, request: Callable[[SandboxSpec], Amounts]) -> None:
        self._request = request
        self._kinds: dict[str, Kind] = {}
        self._idle: set[str] = set()
        self._ending: set[str] = set()

    def on(self, transition: Transition) -> None:
        """Takes in a transition, made at this replica or another one."""
        after = transition.after
        self._idle.discard(after.id)
        self._ending.discard(after.id)
        if after.state is State.ENDED:
            self._kinds.pop(after.id, None)
            return
        if after.id not in self._kinds:
            self._kinds[after.id] = self.kind(after.spec)
        if after.state is State.ENDING:
            self._ending.add(after.id)
        elif after.state is State.WARM and after.unclaimed:
            self._idle.add(after.id)

    def kind(self, spec: SandboxSpec) -> Kind:
        """The kind of a sandbox."""
        return Kind(self._request(spec), tuple(sorted(spec.node_selector.items())))

    def idle_on(self, node_of: Callable[[str], str], node: str) -> list[str]:
        """The ids of the idle ones on a node."""
        return [one for one in self._idle if node_of(one) == node]

    def by_node(self, node_of: Callable[[str], str]) -> Mapping[str, OnNode]:
        """What of it is on which node; nodes that have none of it are left out."""
        found: dict[str, OnNode] = {}
        for sandbox_id in self._idle:
            if node := node_of(sandbox_id):
                found.setdefault(node, OnNode()).idle[self._kinds[sandbox_id]] += 1
        for sandbox_id in self._ending:
            if node := node_of(sandbox_id):
                found.setdefault(node, OnNode()).ending += 1
        return found

    def live(self, waiting: Iterable[Sandbox]) -> Mapping[Kind, int]:
        """How many there are that have not ended, with those that wait wherever they do."""
        unheard = (self.kind(one.spec) for one in waiting if one.id not in self._kinds)
        return Counter([*(kind for one, kind in self._kinds.items() if one not in self._ending), *unheard])
