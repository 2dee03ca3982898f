"""``Room``: what is free on each node, beside the pods there and the starts that have no pod there yet.

A start reserves room before its pod is made, and the scheduler chooses the node afterwards. So a reservation is put on
the node that the scheduler would most likely choose; as soon as the pod is seen on a node, the pod counts there and the
reservation is gone: each sandbox counts once.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Final

from controlplane.capacity.amounts import (
    CPU,
    MEMORY,
    NOTHING,
    ORDER,
    PODS,
    Amounts,
    fits,
    minus,
    plus,
    times,
    words,
)

# Nodes that a sentence names.
MOST_NAMED: Final = 2
_SCORED: Final = (ORDER.index(CPU), ORDER.index(MEMORY))
Selector = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class NodeRoom:
    """A node.

    Attributes:
        allocatable: what pods may request there.
        closed: why it takes no start now; empty: it takes some.
    """

    name: str
    allocatable: Amounts
    labels: Mapping[str, str] = field(default_factory=dict)
    closed: str = ""

    def takes(self, selector: Selector) -> bool:
        """Whether a start with this node selector may come to it."""
        return not self.closed and (
            not selector or all(self.labels.get(key) == value for key, value in selector.items())
        )


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


@dataclass(slots=True)
class _Taken:
    """What is taken of a node: by pods, by the sandboxes among them, by reservations."""

    pods: Amounts = NOTHING
    sandboxes: Amounts = NOTHING
    reserved: Amounts = NOTHING

    @property
    def nothing(self) -> bool:
        return self.pods == NOTHING == self.reserved


@dataclass(frozen=True, slots=True)
class _Reserved:
    request: Amounts
    selector: Selector
    node: str
    anyway: bool = False  # its pod is made whether there is room or not


class Room:
    """What is free on the nodes of a cluster.

    Args:
        disagreed: called for each sandbox that came to a node which by this arithmetic had no room for it.
    """

    def __init__(self, disagreed: Callable[[], None] = lambda: None) -> None:
        self._disagreed = disagreed
        self._nodes: dict[str, NodeRoom] = {}
        self._pods: dict[str, tuple[str, Amounts]] = {}
        self._shapes: dict[Amounts, Amounts] = {}
        self._taken: dict[str, _Taken] = {}
        self._free: dict[str, Amounts] = {}
        self._reserved: dict[str, _Reserved] = {}
        self._listeners: list[Callable[[], None]] = []
        self.known = False

    def listen(self, listener: Callable[[], None]) -> None:
        """Has ``listener`` called whenever there may be more room than before."""
        self._listeners.append(listener)

    # What the cluster has.

    def set_node(self, node: NodeRoom) -> None:
        """Takes in a node that is new or has changed."""
        if self._nodes.get(node.name) != node:
            self._nodes[node.name] = node
            self._count(node.name)
            if node.closed:
                self._leave(node.name)
            self._more()

    def drop_node(self, name: str) -> None:
        """Takes in that a node is gone; its pods count until they are gone too, and starts will come to others."""
        self._nodes.pop(name, None)
        self._free.pop(name, None)
        self._leave(name)

    def put(self, pod: str, node: str, requests: Amounts) -> None:
        """Takes in a pod on a node: ``NAMESPACE/NAME``, or the id of a sandbox of this installation."""
        before = self._pods.get(pod)
        if before == (node, requests):
            return
        if before is not None:
            self._take(pod, before[0], minus(NOTHING, before[1]))
        elif self.known and "/" not in pod and node in self._nodes and not self._really_fits(node, requests):
            self._disagreed()
        # Few pods differ: equal amounts are one object.
        requests = self._shapes.setdefault(requests, requests)
        self._pods[pod] = (node, requests)
        self._take(pod, node, requests)
        reserved = self._reserved.get(pod)
        self.release(pod, quietly=True)
        spared = reserved is not None and (reserved.node != node or not fits(requests, reserved.request))
        if before is not None or spared:
            self._more()

    def remove(self, pod: str) -> None:
        """Takes in that a pod requests nothing any more: it is gone, or all its containers have ended."""
        before = self._pods.pop(pod, None)
        if before is not None:
            self._take(pod, before[0], minus(NOTHING, before[1]))
            self._more()

    def replace(self, pods: Iterable[tuple[str, str, Amounts]]) -> None:
        """Takes in all pods on nodes: name, node and requests of each."""
        seen = {pod: (node, requests) for pod, node, requests in pods}
        for pod in [pod for pod in self._pods if pod not in seen]:
            self.remove(pod)
        for pod, (node, requests) in seen.items():
            self.put(pod, node, requests)
        self._shapes = {requests: requests for _, requests in self._pods.values()}
        self.known = True
        self._more()

    def forget(self) -> None:
        """Takes in that nobody tells of pods any more: what is free is not known until the next ``replace``."""
        self.known = False
        self._more()

    def __contains__(self, pod: str) -> bool:
        """Whether a pod is seen on a node."""
        return pod in self._pods

    # Starts.

    def reserve(self, sandbox_id: str, request: Amounts, selector: Selector, *, anyway: bool = False) -> bool:
        """Sets room aside for a start until its pod is seen on a node, or ``release``; whether there is some.

        Args:
            sandbox_id: of the start; its earlier reservation ends.
            request: what its pod requests.
            selector: of its nodes.
            anyway: also where there is none: its pod is made in any case, so what others have reserved is not kept.
        """
        if sandbox_id in self._pods:
            return True
        self.release(sandbox_id, quietly=True)
        node = self._likely(request, selector)
        if held := node or (self._contested(request, selector) if anyway else ""):
            self._hold(sandbox_id, _Reserved(request, selector, held, anyway))
        return bool(node)

    def kept(self, sandbox_id: str) -> bool:
        """Whether the room of a reservation is still there; if its node has none any more, another one's is taken."""
        if sandbox_id in self._pods:
            return True
        one = self._reserved.get(sandbox_id)
        if one is None:
            return False
        node = self._nodes.get(one.node)
        if node is not None and not node.closed and fits(plus(self._free[node.name], one.request), one.request):
            return True
        return self.reserve(sandbox_id, one.request, one.selector)

    def release(self, sandbox_id: str, *, quietly: bool = False) -> None:
        """Ends a reservation; success if there is none."""
        one = self._reserved.pop(sandbox_id, None)
        if one is None:
            return
        self._change(one.node, reserved=minus(NOTHING, one.request))
        if not quietly:
            self._more()

    # Questions.

    def fit(self, request: Amounts, selector: Selector) -> int:
        """How many such sandboxes fit now. Cost: O(nodes)."""
        return sum(times(self._free[one.name], request) for one in self._open(selector))

    def fit_alone(self, request: Amounts, selector: Selector) -> int:
        """How many fit when no sandbox of this installation runs."""
        free = (
            minus(one.allocatable, minus(taken.pods, taken.sandboxes))
            for one in self._open(selector)
            for taken in (self._taken.get(one.name, _Taken()),)
        )
        return sum(times(room, request) for room in free)

    def tell(self, request: Amounts, selector: Selector) -> str:
        """What the nodes have left of what such a sandbox needs, those with the most room first.

        What is reserved for starts under way is named: no pod there requests it yet.

        For example: ``node a has 0.3 cpu left, node b has 96 MiB of memory left, 3 more have no more; each needs 0.5
        cpu and 288 MiB of memory``.
        """
        nodes = self._open(selector)
        if not nodes:
            return self._none_open(selector)
        rooms = [(*_scarcest(self._free[one.name], request), one.name) for one in nodes]
        rooms.sort(key=lambda room: (-room[0], room[3]))
        said = [self._said(name, resource, left) for _, resource, left, name in rooms[:MOST_NAMED]]
        if more := len(rooms) - len(said):
            said.append(f"{more} more {'has' if more == 1 else 'have'} no more")
        scarce = {resource for _, resource, _, _ in rooms[:MOST_NAMED]}
        needs = [words(name, want, up=True) for name, want in zip(ORDER, request, strict=True) if name in scarce]
        return f"{', '.join(said)}; each needs {' and '.join(needs)}"

    def free(self) -> Sequence[Free]:
        """What is free on each node, by name."""
        found: list[Free] = []
        for name in sorted(self._nodes):
            node, taken = self._nodes[name], self._taken.get(name, _Taken())
            found.append(Free(node, self._free[node.name], taken.reserved, taken.sandboxes[-1], taken.pods[-1]))
        return found

    # Arithmetic.

    def _open(self, selector: Selector) -> list[NodeRoom]:
        return [one for one in self._nodes.values() if one.takes(selector)]

    def _really_fits(self, node: str, requests: Amounts) -> bool:
        """Without reservations, which only say where a pod may come to."""
        taken = self._taken.get(node, _Taken())
        return fits(minus(self._nodes[node].allocatable, taken.pods), requests)

    def _likely(self, request: Amounts, selector: Selector) -> str:
        """The node that the scheduler would most likely choose: the least allocated of those with room; or none."""
        best, score = "", -inf
        for one in self._open(selector):
            free = self._free[one.name]
            if not fits(free, request):
                continue
            spare = sum((free[at] - request[at]) / (one.allocatable[at] or 1) for at in _SCORED)
            if spare > score:
                best, score = one.name, spare
        return best

    def _contested(self, request: Amounts, selector: Selector) -> str:
        """Of nodes with too little room: one that only reservations fill, and of these that with the most room."""
        ranked = (
            (self._really_fits(one.name, request), _scarcest(self._free[one.name], request)[0], one.name)
            for one in self._open(selector)
        )
        return max(ranked, default=(False, 0.0, ""))[2]

    def _leave(self, name: str) -> None:
        """Puts the reservations of a node that takes no start any more on other nodes, as far as there is room."""
        for sandbox_id, one in [(key, one) for key, one in self._reserved.items() if one.node == name]:
            self.reserve(sandbox_id, one.request, one.selector, anyway=one.anyway)

    def _said(self, name: str, resource: str, left: int) -> str:
        reserved = self._taken.get(name, _Taken()).reserved[ORDER.index(resource)]
        beside = f" beside {words(resource, reserved, up=True)} reserved for starts under way" if reserved else ""
        return f"node {name} has {words(resource, left)} left{beside}"

    def _none_open(self, selector: Selector) -> str:
        labelled = [
            one for one in self._nodes.values() if all(one.labels.get(key) == value for key, value in selector.items())
        ]
        if not labelled:
            return "no node for sandboxes has the labels that it asks for" if selector else "there is no node"
        first = min(labelled, key=lambda one: one.name)
        return f"none of {len(labelled)} nodes takes sandboxes now: {first.name} {first.closed}"

    def _hold(self, sandbox_id: str, one: _Reserved) -> None:
        self._reserved[sandbox_id] = one
        self._change(one.node, reserved=one.request)

    def _take(self, pod: str, node: str, requests: Amounts) -> None:
        self._change(node, pods=requests, sandboxes=NOTHING if "/" in pod else requests)

    def _change(
        self, node: str, *, pods: Amounts = NOTHING, sandboxes: Amounts = NOTHING, reserved: Amounts = NOTHING
    ) -> None:
        taken = self._taken.setdefault(node, _Taken())
        taken.pods = plus(taken.pods, pods)
        taken.sandboxes = plus(taken.sandboxes, sandboxes)
        taken.reserved = plus(taken.reserved, reserved)
        if taken.nothing:
            del self._taken[node]
        self._count(node)

    def _count(self, name: str) -> None:
        if (node := self._nodes.get(name)) is not None:
            taken = self._taken.get(name)
            left = node.allocatable if taken is None else minus(node.allocatable, plus(taken.pods, taken.reserved))
            self._free[name] = left

    def _more(self) -> None:
        for listener in self._listeners:
            listener()


def _scarcest(free: Amounts, request: Amounts) -> tuple[float, str, int]:
    """How often the request fits by the resource of which it fits least often, that resource, and what is free."""
    shares = [(have / want, name, have) for name, have, want in zip(ORDER, free, request, strict=True) if want > 0]
    return min(shares, default=(0.0, PODS, free[-1]))
