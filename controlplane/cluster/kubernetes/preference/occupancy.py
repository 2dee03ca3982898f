"""``Occupancy``: what sandboxes take of each node, and which images they run from. Pure: a mirror of the pods."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from controlplane.cluster.kubernetes.podspec import TARGET
from controlplane.cluster.kubernetes.preference.catalogue import key_of
from controlplane.cluster.kubernetes.quantity import amount
from controlplane.cluster.kubernetes.resources import GPU

Json = dict[str, Any]

# As ``resources.request_of`` has them, with their scale.
RESOURCES: Final = {"cpu": 1000, "memory": 1, "ephemeral-storage": 1, GPU: 1}
_OVER: Final = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class _Placed:
    node: str
    image: str
    requests: tuple[int, ...]


class Occupancy:
    """Sandboxes on nodes.

    Args:
        left: called with the image and the node of a sandbox that is over: the node still has its image.
    """

    def __init__(self, left: Callable[[str, str], None] = lambda _image, _node: None) -> None:
        self._left = left
        self._pods: dict[str, _Placed] = {}
        self._used: dict[str, Counter[str]] = {}
        self._running: dict[str, Counter[str]] = {}

    def used(self, node: str) -> Mapping[str, int]:
        """What sandboxes request there, by resource; and ``pods``, how many there are."""
        return self._used.get(node, Counter())

    def running(self, image: str) -> Mapping[str, int]:
        """How many sandboxes of an image (``key_of``) are on each node, those that are still pulled among them."""
        return self._running.get(image, Counter())

    def replace(self, objects: Sequence[Json]) -> None:
        """See ``Mirror.replace``."""
        seen = {str(one["metadata"]["name"]) for one in objects}
        for name in [name for name in self._pods if name not in seen]:
            self._forget(name)
        for one in objects:
            self.put(one)

    def put(self, thing: Json) -> None:
        """See ``Mirror.put``."""
        name, spec = str(thing["metadata"]["name"]), thing.get("spec") or {}
        over = (thing.get("status") or {}).get("phase") in _OVER
        if over:
            self._forget(name)
        elif spec.get("nodeName") and name not in self._pods:
            self._add(name, _placed(spec))

    def remove(self, thing: Json) -> None:
        """See ``Mirror.remove``."""
        self._forget(str(thing["metadata"]["name"]))

    def _add(self, name: str, placed: _Placed) -> None:
        self._pods[name] = placed
        self._used.setdefault(placed.node, Counter()).update(_amounts(placed))
        self._running.setdefault(placed.image, Counter())[placed.node] += 1

    def _forget(self, name: str) -> None:
        placed = self._pods.pop(name, None)
        if placed is None:
            return
        self._used[placed.node].subtract(_amounts(placed))
        if not self._used[placed.node]["pods"]:
            del self._used[placed.node]
        running = self._running[placed.image]
        running[placed.node] -= 1
        if not running[placed.node]:
            del running[placed.node]
        if not running:
            del self._running[placed.image]
        self._left(placed.image, placed.node)


def _amounts(placed: _Placed) -> Mapping[str, int]:
    return {**dict(zip(RESOURCES, placed.requests, strict=True)), "pods": 1}


def _placed(spec: Json) -> _Placed:
    containers = spec.get("containers") or ()
    requests = [(one.get("resources") or {}).get("requests") or {} for one in containers]
    sums = tuple(sum(amount(one.get(name), scale) for one in requests) for name, scale in RESOURCES.items())
    image = next((str(one.get("image") or "") for one in containers if one.get("name") == TARGET), "")
    return _Placed(str(spec["nodeName"]), key_of(image), sums)
