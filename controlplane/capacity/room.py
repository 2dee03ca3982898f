"""``Room``: what is free on each node, beside the pods there and the starts that have no pod there yet.

A start reserves room before its pod is made, and the scheduler chooses the node afterwards. So a reservation is put on
the node that the scheduler would most likely choose; as soon as the pod is seen on a node, the pod counts there and the
reservation is gone: each sandbox counts once.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from controlplane.capacity.amounts import NOTHING, Amounts, fits, minus, plus
from controlplane.capacity.nodes import ANYWHERE, Free, NodeRoom, Selector
from controlplane.capacity.occupied import Occupied
from controlplane.capacity.sentences import tell


@dataclass(frozen=True, slots=True)
class _Wish:
    """What a start asks for; ``anyway``: its pod is made whether there is room or not."""

    request: Amounts
    selector: Selector
    off: Collection[str]
    anyway: bool = False


class Room:
    """What is free on the nodes of a cluster.

    Questions and reservations name what a sandbox requests, its node selector, and the nodes that it may not come to
    in spite of their labels (``off``).

    Args:
        disagreed: called for each sandbox that came to a node which by this arithmetic had no room for it.
        packs: the scheduler fills one node after the other, and does not spread.
    """

    def __init__(self, disagreed: Callable[[], None] = lambda: None, *, packs: bool = False) -> None:
        self._disagreed = disagreed
        self._occupied = Occupied(packs=packs)
        self._pods: dict[str, tuple[str, Amounts]] = {}
        self._shapes: dict[Amounts, Amounts] = {}
        self._reserved: dict[str, tuple[str, _Wish]] = {}  # by sandbox: its node, and what for
        self._again: dict[str, _Wish] = {}  # sandboxes whose pods make place for another pod of theirs
        self._listeners: list[Callable[[], None]] = []
        self.known = False

    def listen(self, listener: Callable[[], None]) -> None:
        """Has ``listener`` called whenever there may be more room than before."""
        self._listeners.append(listener)

    # What the cluster has.

    def set_node(self, node: NodeRoom) -> None:
        """Takes in a node that is new or has changed."""
        if self._occupied.set_node(node):
            if node.closed:
                self._leave(node.name)
            self._more()

    def drop_node(self, name: str) -> None:
        """Takes in that a node is gone; its pods count until they are gone too, and starts will come to others."""
        self._occupied.drop_node(name)
        self._leave(name)

    def put(self, pod: str, node: str, requests: Amounts) -> None:
        """Takes in a pod on a node: ``NAMESPACE/NAME``, or the id of a sandbox of this installation."""
        before = self._pods.get(pod)
        if before == (node, requests):
            return
        if before is not None:
            self._take(pod, before[0], minus(NOTHING, before[1]))
        elif self.known and "/" not in pod and not self._occupied.takes_in(node, requests):
            self._disagreed()
        # Few pods differ: equal amounts are one object.
        requests = self._shapes.setdefault(requests, requests)
        self._pods[pod] = (node, requests)
        self._take(pod, node, requests)
        reserved = self._reserved.get(pod)
        self.release(pod, quietly=True)
        spared = reserved is not None and (reserved[0] != node or not fits(requests, reserved[1].request))
        if before is not None or spared:
            self._more()

    def remove(self, pod: str) -> None:
        """Takes in that a pod requests nothing any more: it is gone, or all its containers have ended."""
        before = self._pods.pop(pod, None)
        if before is None:
            return
        self._take(pod, before[0], minus(NOTHING, before[1]))
        if (wish := self._again.pop(pod, None)) is not None:
            self._reserve(pod, wish)
        self._more()

    def replace(self, pods: Iterable[tuple[str, str, Amounts]], among: Callable[[str], bool] | None = None) -> None:
        """Takes in all pods on nodes; from then on what is free is known.

        Args:
            pods: name, node and requests of each.
            among: only some were told, those of whose names it says so: nothing follows for others.
        """
        seen = {pod: (node, requests) for pod, node, requests in pods}
        for pod in [pod for pod in self._pods if pod not in seen and (among is None or among(pod))]:
            self.remove(pod)
        for pod, (node, requests) in seen.items():
            self.put(pod, node, requests)
        self._shapes = {requests: requests for _, requests in self._pods.values()}
        self.known = self.known or among is None
        self._more()

    def know(self) -> None:
        """Takes in that all were told, some after the others."""
        self.known = True
        self._more()

    def forget(self) -> None:
        """Takes in that nobody tells of pods any more: what is free is not known until all were told again."""
        self.known = False
        self._more()

    def __contains__(self, pod: str) -> bool:
        """Whether a pod is seen on a node."""
        return pod in self._pods

    def pod(self, name: str) -> tuple[str, Amounts] | None:
        """Node and requests of a pod; None: it is seen on none."""
        return self._pods.get(name)

    # Starts.

    def reserve(
        self,
        sandbox_id: str,
        request: Amounts,
        selector: Selector,
        off: Collection[str] = ANYWHERE,
        *,
        anyway: bool = False,
    ) -> bool:
        """Sets room aside for a start until its pod is seen on a node, or ``release``; whether there is some.

        Args:
            sandbox_id: of the start; its earlier reservation ends.
            request: what its pod requests.
            selector: of its nodes.
            off: nodes that it may not come to.
            anyway: also where there is none: its pod is made in any case, so what others have reserved is not kept.
        """
        return sandbox_id in self._pods or self._reserve(sandbox_id, _Wish(request, selector, off, anyway))

    def again(self, sandbox_id: str, request: Amounts, selector: Selector, off: Collection[str] = ANYWHERE) -> None:
        """Has room reserved for a start whose pod makes place for another one, before anybody hears of that place.

        Args:
            sandbox_id: of the start.
            request: of its next pod.
            selector: of the nodes of that.
            off: nodes that it may not come to.
        """
        if sandbox_id in self._pods:
            self._again[sandbox_id] = _Wish(request, selector, off, anyway=True)
        else:
            self.reserve(sandbox_id, request, selector, off, anyway=True)

    def kept(self, sandbox_id: str) -> bool:
        """Whether the room of a reservation is still there; if its node has none any more, another one's is taken."""
        if sandbox_id in self._pods:
            return True
        one = self._reserved.get(sandbox_id)
        if one is None:
            return False
        name, wish = one
        node, want = self._occupied.nodes.get(name), wish.request
        if node is not None and not node.closed and fits(plus(self._occupied.free_of(name), want), want):
            return True
        return self._reserve(sandbox_id, _Wish(wish.request, wish.selector, wish.off))

    def release(self, sandbox_id: str, *, quietly: bool = False) -> None:
        """Ends a reservation; success if there is none."""
        self._again.pop(sandbox_id, None)
        one = self._reserved.pop(sandbox_id, None)
        if one is None:
            return
        self._occupied.change(one[0], reserved=minus(NOTHING, one[1].request))
        if not quietly:
            self._more()

    # Questions.

    def fit(self, request: Amounts, selector: Selector, off: Collection[str] = ANYWHERE, *, enough: float = inf) -> int:
        """How many such sandboxes fit now. Cost: O(nodes).

        Args:
            request: what each requests.
            selector: of its nodes.
            off: nodes that it may not come to.
            enough: counting may end there.
        """
        return self._occupied.fit(request, selector, off, enough)

    def fit_alone(self, request: Amounts, selector: Selector, off: Collection[str] = ANYWHERE) -> int:
        """How many fit when no sandbox of this installation runs."""
        return self._occupied.fit_alone(request, selector, off)

    def tell(self, request: Amounts, selector: Selector, off: Collection[str] = ANYWHERE) -> str:
        """What the nodes have left of what such a sandbox needs, those with the most room first."""
        return tell(self._occupied, request, selector, off)

    def free(self) -> Sequence[Free]:
        """What is free on each node, by name."""
        return list(self._occupied.all())

    def expected(self, sandbox_id: str, request: Amounts, selector: Selector, off: Collection[str]) -> str:
        """The node that a start should come to: that of its reservation, or the likely one; empty: none has room.

        Args:
            sandbox_id: of the start.
            request: what its pod requests.
            selector: of its nodes.
            off: nodes that it should not come to.
        """
        reserved = self._reserved.get(sandbox_id)
        if reserved is not None and reserved[0] not in off:
            return reserved[0]
        return self._occupied.likely(request, selector, off)

    def without_slots(self) -> Sequence[str]:
        """Nodes that take no further sandbox for want of slots alone, which no scheduler knows of; by name."""
        return self._occupied.without_slots()

    def nodes(self) -> Mapping[str, NodeRoom]:
        """All nodes, by name."""
        return self._occupied.nodes

    def _reserve(self, sandbox_id: str, wish: _Wish) -> bool:
        self.release(sandbox_id, quietly=True)
        where = wish.request, wish.selector, wish.off
        node = self._occupied.likely(*where)
        if held := node or (self._occupied.contested(*where) if wish.anyway else ""):
            self._reserved[sandbox_id] = (held, wish)
            self._occupied.change(held, reserved=wish.request)
        return bool(node)

    def _leave(self, name: str) -> None:
        """Puts the reservations of a node that takes no start any more on other nodes, as far as there is room."""
        for sandbox_id, wish in [(key, wish) for key, (node, wish) in self._reserved.items() if node == name]:
            self._reserve(sandbox_id, wish)

    def _take(self, pod: str, node: str, requests: Amounts) -> None:
        self._occupied.change(node, pods=requests, sandboxes=NOTHING if "/" in pod else requests)

    def _more(self) -> None:
        for listener in self._listeners:
            listener()
