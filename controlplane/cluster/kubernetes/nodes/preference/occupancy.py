"""``Occupancy``: what sandboxes take of each node, and which images they run from. Pure: a mirror of the pods."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from controlplane.capacity.amounts import GPU
from controlplane.cluster.kubernetes.api_server.quantity import amount
from controlplane.cluster.kubernetes.marks import TARGET
from controlplane.cluster.kubernetes.nodes.preference.catalogue import key_of

Json = dict[str, Any]

# As ``resources.request_of`` has them, with their scale.
RESOURCES: Final = {"cpu": 1000, "memory": 1, "ephemeral-storage": 1, GPU: 1}
_OVER: Final = ("Succeeded", "Failed")
# What the kubelet says of a container whose image it does not get.
_NOT_PULLED: Final = frozenset({"ErrImagePull", "ImagePullBackOff", "RegistryUnavailable"})


@dataclass(slots=True)
class _Placed:
    """A sandbox on a node: whether its image was seen there, and whether the node did not get it."""

    node: str
    image: str
    requests: tuple[int, ...]
    seen: bool = False
    failed: bool = False


class Occupancy:
    """Sandboxes on nodes.

    Args:
        seen: called with image and node when a sandbox has begun to run from it there, and when that is over.
        failed: called with image and node when the node did not get it.
    """

    def __init__(self, seen: Callable[[str, str], None], failed: Callable[[str, str], None]) -> None:
        self._on_seen = seen
        self._on_failed = failed
        self._pods: dict[str, _Placed] = {}
        self._used: dict[str, Counter[str]] = {}
        self._running: dict[str, Counter[str]] = {}

    def used(self, node: str) -> Mapping[str, int]:
        """What sandboxes request there, by resource; and ``pods``, how many there are."""
        return self._used.get(node, Counter())

    def running(self, image: str) -> Mapping[str, int]:
        """How many sandboxes of an image (``key_of``) are on each node; not where the node does not get the image."""
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
        name, spec, status = str(thing["metadata"]["name"]), thing.get("spec") or {}, thing.get("status") or {}
        if spec.get("nodeName") and name not in self._pods and status.get("phase") not in _OVER:
            self._add(name, _placed(spec))
        if (placed := self._pods.get(name)) is not None:
            self._look(placed, status.get("containerStatuses") or ())
        if status.get("phase") in _OVER:
            self._forget(name)

    def remove(self, thing: Json) -> None:
        """See ``Mirror.remove``."""
        self._forget(str(thing["metadata"]["name"]))

    def _add(self, name: str, placed: _Placed) -> None:
        self._pods[name] = placed
        self._used.setdefault(placed.node, Counter()).update(_amounts(placed))
        self._running.setdefault(placed.image, Counter())[placed.node] += 1

    def _look(self, placed: _Placed, statuses: Sequence[Json]) -> None:
        if not placed.seen and any(one.get("name") == TARGET and one.get("imageID") for one in statuses):
            placed.seen = True
            self._on_seen(placed.image, placed.node)
        reasons = {((one.get("state") or {}).get("waiting") or {}).get("reason") for one in statuses}
        if not placed.failed and not placed.seen and reasons & _NOT_PULLED:
            placed.failed = True
            self._leave(placed)
            self._on_failed(placed.image, placed.node)

    def _leave(self, placed: _Placed) -> None:
        running = self._running[placed.image]
        running[placed.node] -= 1
        if not running[placed.node]:
            del running[placed.node]
        if not running:
            del self._running[placed.image]

    def _forget(self, name: str) -> None:
        placed = self._pods.pop(name, None)
        if placed is None:
            return
        self._used[placed.node].subtract(_amounts(placed))
        if not self._used[placed.node]["pods"]:
            del self._used[placed.node]
        if not placed.failed:
            self._leave(placed)
        # One that never ran says nothing: its pull may have been what ended it.
        if placed.seen:
            self._on_seen(placed.image, placed.node)


def _amounts(placed: _Placed) -> Mapping[str, int]:
    return {**dict(zip(RESOURCES, placed.requests, strict=True)), "pods": 1}


def _placed(spec: Json) -> _Placed:
    containers = spec.get("containers") or ()
    requests = [(one.get("resources") or {}).get("requests") or {} for one in containers]
    # A sandbox's devices are claims, one for each.
    requests.append({GPU: len(spec.get("resourceClaims") or ())})
    sums = tuple(sum(amount(one.get(name), scale) for one in requests) for name, scale in RESOURCES.items())
    image = next((str(one.get("image") or "") for one in containers if one.get("name") == TARGET), "")
    return _Placed(str(spec["nodeName"]), key_of(image), sums)
