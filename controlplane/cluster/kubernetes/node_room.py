"""``NodeRooms``: keeps a ``Room`` current from the watches of all pods and of the nodes."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from controlplane.capacity import NodeRoom, Room, amounts
from controlplane.capacity.amounts import PODS
from controlplane.cluster.kubernetes.nodes import Fleet, Node
from controlplane.cluster.kubernetes.pod_requests import counted, requests_of

Json = dict[str, Any]

# Of pods of all namespaces: those on nodes that have not ended. A pod that leaves these is reported as deleted.
ON_NODES: Final[Mapping[str, str]] = {"fieldSelector": "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"}
# Of a node that does not report how many pods it takes.
ANY_PODS: Final = 1_000_000


def slim(pod: Json) -> Json:
    """What is kept of a pod while all are listed: name, node and requests."""
    about = pod["metadata"]
    kept: Json = {"name": about["name"], "namespace": about.get("namespace") or ""}
    placed = (pod.get("spec") or {}).get("nodeName")
    return {"metadata": kept, "node": placed if counted(pod) else "", "requests": requests_of(pod)}


class NodeRooms:
    """What is free on the nodes that sandboxes may run on.

    Attributes:
        room: the same, for everybody who asks.
        pods: the mirror of the pods of all namespaces.

    Args:
        fleet: which nodes sandboxes may run on.
        namespace: of this installation's sandboxes.
        disagreed: see ``Room``.
    """

    def __init__(self, fleet: Fleet, namespace: str, disagreed: Callable[[], None]) -> None:
        self.room = Room(disagreed)
        self.pods = _PodMirror(self.room, namespace)
        self._fleet = fleet

    def see(self, node: Node) -> None:
        """Takes in a node that is new or has changed."""
        if self._fleet.eligible([node]):
            self.room.set_node(_room_of(node))
        else:
            self.room.drop_node(node.name)


def _room_of(node: Node) -> NodeRoom:
    closed = ""
    if node.ready != "True":
        closed = f"is not ready: {node.why_not_ready[:200]}"
    elif not node.schedulable:
        closed = "is cordoned"
    held = {**node.allocatable, PODS: node.pods or ANY_PODS}
    return NodeRoom(node.name, amounts(held), node.labels, closed)


class _PodMirror:
    """A mirror of the pods of all namespaces; see ``Mirror``."""

    def __init__(self, room: Room, namespace: str) -> None:
        self._room = room
        self._namespace = namespace

    def replace(self, objects: Sequence[Json]) -> None:
        """See ``Mirror.replace``; they are ``slim`` ones."""
        placed = ((self._key(one), str(one["node"]), one["requests"]) for one in objects if one["node"])
        self._room.replace(placed)

    def put(self, thing: Json) -> None:
        """See ``Mirror.put``."""
        if counted(thing):
            self._room.put(self._key(thing), str(thing["spec"]["nodeName"]), requests_of(thing))
        else:
            self._room.remove(self._key(thing))

    def remove(self, thing: Json) -> None:
        """See ``Mirror.remove``."""
        self._room.remove(self._key(thing))

    def _key(self, pod: Json) -> str:
        name, namespace = str(pod["metadata"]["name"]), str(pod["metadata"].get("namespace") or "")
        return name if namespace == self._namespace else f"{namespace}/{name}"
