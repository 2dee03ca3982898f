"""``NodeRooms``: keeps a ``Room`` current from the watches of all pods and of the nodes."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from controlplane.capacity import NodeRoom, Room, amounts
from controlplane.capacity.amounts import PODS
from controlplane.capacity.nodes import CORDONED
from controlplane.cluster.kubernetes.nodes import Fleet, Node
from controlplane.cluster.kubernetes.pod_requests import counted, requests_of
from controlplane.cluster.kubernetes.podspec import DOMAIN, LABEL_INSTALLATION, LABEL_SANDBOX

Json = dict[str, Any]

# Of pods of all namespaces: those on nodes that have not ended. A pod that leaves these is reported as deleted.
ON_NODES: Final[Mapping[str, str]] = {"fieldSelector": "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"}
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
        pods: the mirror of the pods of all namespaces.

    Args:
        fleet: which nodes sandboxes may run on.
        namespace: of this installation's sandboxes; other pods may be there, too.
        installation: the value of their label.
        disagreed: see ``Room``.
        packs: see ``Room``.
    """

    def __init__(
        self, fleet: Fleet, namespace: str, installation: str, disagreed: Callable[[], None], *, packs: bool
    ) -> None:
        self.room = Room(disagreed, packs=packs)
        self.pods = _PodMirror(self.room, namespace, installation)
        self._fleet = fleet

    def slim(self, pod: Json) -> Json:
        """What is kept of a pod while all are listed: its name in ``Room``, node and requests."""
        placed = (pod.get("spec") or {}).get("nodeName")
        return {"key": self.pods.key(pod), "node": placed if counted(pod) else "", "requests": requests_of(pod)}

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
    return NodeRoom(node.name, amounts(held), node.labels, closed, _slots(node.labels.get(LABEL_SLOTS, "")))


def _slots(label: str) -> int:
    """How many sandboxes a node takes, by its label; a label that is no such number counts as none."""
    return int(label) if label.isascii() and label.isdigit() and len(label) < MOST_DIGITS else DEFAULT_SLOTS


class _PodMirror:
    """A mirror of the pods of all namespaces; see ``Mirror``."""

    def __init__(self, room: Room, namespace: str, installation: str) -> None:
        self._room = room
        self._namespace = namespace
        self._installation = installation

    def key(self, pod: Json) -> str:
        """The pod's name in ``Room``: a sandbox of this installation has its id."""
        about = pod["metadata"]
        name, namespace, labels = str(about["name"]), str(about.get("namespace") or ""), about.get("labels") or {}
        ours = labels.get(LABEL_INSTALLATION) == self._installation and LABEL_SANDBOX in labels
        return name if ours and namespace == self._namespace else f"{namespace}/{name}"

    def replace(self, objects: Sequence[Json]) -> None:
        """See ``Mirror.replace``; they are what ``NodeRooms.slim`` has kept."""
        placed = ((str(one["key"]), str(one["node"]), one["requests"]) for one in objects if one["node"])
        self._room.replace(placed)

    def put(self, thing: Json) -> None:
        """See ``Mirror.put``."""
        if counted(thing):
            self._room.put(self.key(thing), str(thing["spec"]["nodeName"]), requests_of(thing))
        else:
            self._room.remove(self.key(thing))

    def remove(self, thing: Json) -> None:
        """See ``Mirror.remove``."""
        self._room.remove(self.key(thing))
