"""``NodeDevices``: the devices that nodes have for sandboxes, by dynamic resource allocation (DRA).

Drivers publish the devices of their nodes in ResourceSlices; an operator's DeviceClass says which are for sandboxes.
Each sandbox has claims for its own, which both its containers name: see ``pods/claims.py``. Devices of sandboxes are
counted by their pods, and those that pods of others hold by their claims, which the allocation of these names.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from controlplane.capacity.amounts import GPU
from controlplane.cluster.kubernetes.nodes.device_class import conditions, selected
from controlplane.cluster.kubernetes.nodes.nodes import Node
from controlplane.errors import Problem
from controlplane.model import SandboxSpec

API: Final = "/apis/resource.k8s.io/v1"
_KEPT_OUT: Final = ("NoSchedule", "NoExecute")

Json = dict[str, Any]
# A device: driver, pool and name.
_Key = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class DeviceClaims:
    """How sandboxes get devices.

    Attributes:
        device_class: the DeviceClass whose devices are for sandboxes.
        template: the ResourceClaimTemplate in the sandboxes' namespace, for one device.
        runtime_class: of sandboxes with devices; empty: that of all others.
        handler: its handler on the nodes.
    """

    device_class: str
    template: str
    runtime_class: str = ""
    handler: str = ""


class NodeDevices:
    """The devices of one class. Its mirrors are kept by watches.

    Attributes:
        classes: the mirror of the class.
        slices: the mirror of all ResourceSlices.
        claims: the mirror of the ResourceClaims outside the sandboxes' namespace.

    Args:
        given: how sandboxes get devices.
    """

    def __init__(self, given: DeviceClaims) -> None:
        self._given = given
        self._listeners: list[Callable[[], None]] = []
        self._there: Counter[str] = Counter()  # by node
        self._taken: Counter[str] = Counter()  # of these by pods of others
        self.classes, self.slices, self.claims = (_Objects(self._look) for _ in range(3))

    def listen(self, listener: Callable[[], None]) -> None:
        """Has ``listener`` called when nodes have others than before, or others hold others."""
        self._listeners.append(listener)

    def check(self, spec: SandboxSpec) -> None:
        """Refuses a spec that asks for devices of a class that there is not.

        Raises:
            Problem: unsupported, naming the option.
        """
        if spec.gpu and not self._class():
            name = self._given.device_class
            todo = "install the driver of the devices, which brings it, or name another one (gpu.deviceClass)"
            detail = f"gpu {spec.gpu}: the cluster has no DeviceClass {name}: {todo} (docs/gpu.md)"
            raise Problem("unsupported", detail, option="gpu", most=0)

    def equip(self, node: Node) -> Node:
        """The node with the devices of the class, in the place of those that its kubelet tells."""
        count = self._there[node.name] if self._runs(node) else 0
        return replace(
            node,
            allocatable={**node.allocatable, GPU: count},
            capacity={**node.capacity, GPU: count},
            devices_of_others=min(count, self._taken[node.name]),
        )

    def unable(self, nodes: Sequence[Node]) -> Sequence[str]:
        """The names of the nodes that have devices, and not the runtime of sandboxes with some."""
        return [one.name for one in nodes if self._there[one.name] and not self._runs(one)]

    def _runs(self, node: Node) -> bool:
        return not self._given.handler or node.handlers is None or self._given.handler in node.handlers

    def _class(self) -> Json | None:
        return self.classes.all.get(f"/{self._given.device_class}")

    def _look(self) -> None:
        before = self._there, self._taken
        found = {} if (known := self._class()) is None else dict(_devices(known, [*self.slices.all.values()]))
        self._there = Counter(found.values())
        self._taken = Counter(
            found[key] for claim in self.claims.all.values() for key in _allocated(claim) if key in found
        )
        if before != (self._there, self._taken):
            for listener in self._listeners:
                listener()


class _Objects:
    """A mirror that keeps objects as they are, by namespace and name; see ``Mirror``."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self.all: dict[str, Json] = {}
        self._changed = changed

    def replace(self, objects: Sequence[Json]) -> None:
        """See ``Mirror.replace``."""
        self.all = {_name(one): one for one in objects}
        self._changed()

    def put(self, thing: Json) -> None:
        """See ``Mirror.put``."""
        self.all[_name(thing)] = thing
        self._changed()

    def remove(self, thing: Json) -> None:
        """See ``Mirror.remove``."""
        self.all.pop(_name(thing), None)
        self._changed()


def _name(thing: Json) -> str:
    about = thing["metadata"]
    return f"{about.get('namespace') or ''}/{about['name']}"


def _devices(device_class: Json, slices: Sequence[Json]) -> Iterator[tuple[_Key, str]]:
    """The devices of a class that can be allocated, and the node of each. Of a pool the newest generation counts."""
    asked = conditions(device_class)
    newest: Counter[tuple[str, str]] = Counter()
    for spec in (one["spec"] for one in slices):
        newest[_pool(spec)] = max(newest[_pool(spec)], _generation(spec))
    for spec in (one["spec"] for one in slices):
        driver, pool = _pool(spec)
        node = str(spec.get("nodeName") or "")
        if not node or _generation(spec) < newest[driver, pool]:
            continue
        for device in spec.get("devices") or ():
            if not _tainted(device) and selected(asked, driver, device.get("attributes") or {}):
                yield (driver, pool, str(device["name"])), node


def _pool(spec: Mapping[str, Any]) -> tuple[str, str]:
    return str(spec.get("driver") or ""), str((spec.get("pool") or {}).get("name") or "")


def _generation(spec: Mapping[str, Any]) -> int:
    return int((spec.get("pool") or {}).get("generation") or 0)


def _tainted(device: Mapping[str, Any]) -> bool:
    return any(one.get("effect") in _KEPT_OUT for one in device.get("taints") or ())


def _allocated(claim: Json) -> Iterator[_Key]:
    devices = ((claim.get("status") or {}).get("allocation") or {}).get("devices") or {}
    for one in devices.get("results") or ():
        # What watches a device holds it not.
        if not one.get("adminAccess"):
            yield str(one["driver"]), str(one["pool"]), str(one["device"])
