"""``NodeRooms``: keeps a ``Room`` current from the watches of the nodes and of all pods.

The pods of the sandboxes' namespace are watched once, for what is free and for what becomes of sandboxes; those of all
other namespaces beside that. A second watch of the sandboxes' pods would bring two more events of 7 KB for each start.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from controlplane.capacity import Amounts, NodeRoom, Room, amounts
from controlplane.capacity.amounts import GPU, PODS
from controlplane.capacity.nodes import CORDONED
from controlplane.cluster.kubernetes.api_server.watch import Mirror
from controlplane.cluster.kubernetes.marks import DOMAIN, LABEL_INSTALLATION, LABEL_SANDBOX
from controlplane.cluster.kubernetes.nodes.nodes import Fleet, Node
from controlplane.cluster.kubernetes.nodes.pod_requests import by_claims, counted, requests_of

Json = dict[str, Any]

# Of pods: those on nodes that have not ended. A pod that leaves these is reported as deleted.
_ON_NODES: Final = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"
# Why a node takes no start although the cluster takes it for ready.
SILENT: Final = "its kubelet does not renew its lease"
# Says on a node how many sandboxes it takes at most; 0: none.
LABEL_SLOTS: Final = f"{DOMAIN}/slots"
DEFAULT_SLOTS: Final = 256
MOST_DIGITS: Final = 7
# Of a node that does not report how many pods it takes.
ANY_PODS: Final = 1_000_000


class NodeRooms:
    """What is free on the nodes that sandboxes may run on.

    Attributes:
        room: the same, for everybody who asks.
        elsewhere: selects the pods of all other namespaces that are on nodes.
        pods: the mirror of these.

    Args:
        fleet: which nodes sandboxes may run on.
        namespace: of this installation's sandboxes; other pods may be there, too.
        installation: the value of their label.
        disagreed: see ``Room``.
        packs: see ``Room``.
        claims: devices of sandboxes are claimed, and not requested of kubelets.
    """

    def __init__(
        self,
        fleet: Fleet,
        namespace: str,
        installation: str,
        disagreed: Callable[[], None],
        *,
        packs: bool,
        claims: bool = False,
    ) -> None:
        self.room = Room(disagreed, packs=packs)
        self.elsewhere: Mapping[str, str] = {"fieldSelector": f"metadata.namespace!={namespace},{_ON_NODES}"}
        self._keys = _Keys(namespace, installation, claims=claims)
        self.pods = _Elsewhere(self.room, self._keys)
        self._fleet = fleet

    def beside(self, sandboxes: Mirror) -> Mirror:
        """A mirror of all pods of the sandboxes' namespace; ``sandboxes`` is told of this installation's."""
        return _Namespace(self.room, self._keys, sandboxes)

    def slim(self, pod: Json) -> Json:
        """What is kept of a pod while all others are listed: its name in ``Room``, node and requests."""
        return _slim(self._keys, pod)

    def see(self, node: Node, *, silent: bool = False) -> None:
        """Takes in a node that is new or has changed; ``silent``: its kubelet says nothing."""
        if self._fleet.eligible([node.lasting()]):
            self.room.set_node(_room_of(node, tolerated=bool(self._fleet.eligible([node])), silent=silent))
        else:
            self.room.drop_node(node.name)


def _room_of(node: Node, *, tolerated: bool, silent: bool) -> NodeRoom:
    closed = ""
    if node.ready != "True":
        closed = f"is not ready: {node.why_not_ready[:200]}"
    elif silent:
        closed = f"is silent: {SILENT}"
    elif node.marks:
        closed = node.marks[0].why
    elif not node.schedulable:
        closed = CORDONED
    elif not tolerated:
        closed = f"has taints: {', '.join(str(one.get('key')) for one in node.taints)}"
    held = {**node.allocatable, PODS: node.pods or ANY_PODS}
    held[GPU] -= node.devices_of_others
    return NodeRoom(node.name, amounts(held), node.labels, closed, _slots(node.labels.get(LABEL_SLOTS, "")))


def at_most(node: Node) -> int:
    """How many sandboxes a node takes: its slots, or the pods of its kubelet where these are fewer."""
    return min(_slots(node.labels.get(LABEL_SLOTS, "")), node.pods or ANY_PODS)


def _slots(label: str) -> int:
    """How many sandboxes a node takes, by its label; a label that is no such number counts as none."""
    return int(label) if label.isascii() and label.isdigit() and len(label) < MOST_DIGITS else DEFAULT_SLOTS


class _Keys:
    """Names of pods in ``Room``, and what they request."""

    def __init__(self, namespace: str, installation: str, *, claims: bool) -> None:
        self._namespace = namespace
        self._installation = installation
        self._claims = claims

    def __call__(self, pod: Json) -> str:
        """The pod's: a sandbox of this installation has its id."""
        about = pod["metadata"]
        name, namespace = str(about["name"]), str(about.get("namespace") or "")
        return name if namespace == self._namespace and self.ours(pod) else f"{namespace}/{name}"

    def requests(self, pod: Json) -> Amounts:
        """What it requests of its node."""
        requests = requests_of(pod)
        here = pod["metadata"].get("namespace") == self._namespace
        return by_claims(requests, pod, sandbox=here) if self._claims else requests

    def ours(self, pod: Json) -> bool:
        """Whether a pod of the sandboxes' namespace is a sandbox of this installation."""
        labels = pod["metadata"].get("labels") or {}
        return labels.get(LABEL_INSTALLATION) == self._installation and LABEL_SANDBOX in labels

    def here(self, key: str) -> bool:
        """Whether it names a pod of the sandboxes' namespace."""
        return "/" not in key or key.startswith(f"{self._namespace}/")


class _Pods:
    """Tells ``Room`` of changes of pods; see ``Mirror``."""

    def __init__(self, room: Room, keys: _Keys) -> None:
        self._room = room
        self._keys = keys

    def put(self, thing: Json) -> None:
        """See ``Mirror.put``."""
        if counted(thing):
            self._room.put(self._keys(thing), str(thing["spec"]["nodeName"]), self._keys.requests(thing))
        else:
            self._room.remove(self._keys(thing))

    def remove(self, thing: Json) -> None:
        """See ``Mirror.remove``."""
        self._room.remove(self._keys(thing))


class _Elsewhere(_Pods):
    """A mirror of the pods of all other namespaces: once these were told, what is free is known."""

    def replace(self, objects: Sequence[Json]) -> None:
        """See ``Mirror.replace``; they are what ``NodeRooms.slim`` has kept."""
        self._room.replace(_placed(objects), lambda key: not self._keys.here(key))
        self._room.know()


class _Namespace(_Pods):
    """A mirror of the pods of the sandboxes' namespace, beside that of the sandboxes."""

    def __init__(self, room: Room, keys: _Keys, sandboxes: Mirror) -> None:
        super().__init__(room, keys)
        self._sandboxes = sandboxes

    def replace(self, objects: Sequence[Json]) -> None:
        """See ``Mirror.replace``."""
        self._sandboxes.replace([one for one in objects if self._keys.ours(one)])
        self._room.replace(_placed(_slim(self._keys, one) for one in objects), self._keys.here)

    def put(self, thing: Json) -> None:
        """See ``Mirror.put``."""
        if self._keys.ours(thing):
            self._sandboxes.put(thing)
        super().put(thing)

    def remove(self, thing: Json) -> None:
        """See ``Mirror.remove``."""
        if self._keys.ours(thing):
            self._sandboxes.remove(thing)
        super().remove(thing)


def _slim(keys: _Keys, pod: Json) -> Json:
    placed = (pod.get("spec") or {}).get("nodeName")
    return {"key": keys(pod), "node": placed if counted(pod) else "", "requests": keys.requests(pod)}


def _placed(slim: Iterable[Json]) -> Iterator[tuple[str, str, Amounts]]:
    return ((str(one["key"]), str(one["node"]), one["requests"]) for one in slim if one["node"])
