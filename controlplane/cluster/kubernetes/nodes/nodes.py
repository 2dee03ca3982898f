"""What the nodes have and can run, and which requests they therefore cannot honour. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Self

from controlplane.capacity import NOTHING, ORDER, Amounts, amounts
from controlplane.capacity.amounts import GPU, PODS, plus
from controlplane.cluster.kubernetes.api_server.quantity import amount
from controlplane.cluster.kubernetes.nodes.drain_marks import Mark, freezes, is_mark, marks
from controlplane.cluster.kubernetes.nodes.resources import disk_bytes, request_of
from controlplane.errors import Problem
from controlplane.images import parse
from controlplane.model import SandboxSpec
from controlplane.scaling import NodePool

_RESOURCES: Final = {"cpu": 1000, "memory": 1, "ephemeral-storage": 1, GPU: 1}
# Taints of the node's state, which come and go.
_OF_STATE: Final = "node.kubernetes.io/"
_KEEPS_OUT: Final = ("NoSchedule", "NoExecute")
# The scheduler's resource -> the option of a create that requests it.
_OPTIONS: Final = {
    "cpu": "cpu_millicores.request",
    "memory": "memory_bytes.request",
    "ephemeral-storage": "disk_bytes",
    GPU: "gpu",
}
_LIMITS: Final = {"cpu": "cpu_millicores.limit", "memory": "memory_bytes.limit", "ephemeral-storage": "disk_bytes"}


@dataclass(frozen=True, slots=True)
class Node:
    """The fields of a node that are needed here.

    Attributes:
        ready: ``True``, ``False`` (reported by its kubelet) or ``Unknown`` (its kubelet does not report any more).
        taints: those that keep pods out.
        allocatable: what pods may request, by resource; cpu in millicores.
        capacity: the node's total, by resource: a limit above it can never be reached.
        handlers: the handlers of its container runtimes; None if its kubelet does not report them.
        pods: how many pods it takes at most; 0 if it does not report it.
        images: full names of the images that it has; its kubelet reports only the largest ones.
        architecture: as images name it; empty if it does not report it.
        marks: what says that it will go.
        freezes: whether its machine stands still for a moment, now or soon, and goes on then.
        devices_of_others: how many of its devices for sandboxes pods of others hold.
    """

    name: str
    ready: str
    why_not_ready: str
    schedulable: bool
    labels: Mapping[str, str]
    taints: tuple[Mapping[str, str], ...]
    allocatable: Mapping[str, int]
    capacity: Mapping[str, int]
    handlers: frozenset[str] | None
    pods: int = 0
    images: frozenset[str] = frozenset()
    architecture: str = ""
    marks: tuple[Mark, ...] = ()
    freezes: bool = False
    devices_of_others: int = 0

    @classmethod
    def of(cls, node: Mapping[str, Any]) -> Self:
        """From the API's object."""
        spec, status = node.get("spec") or {}, node.get("status") or {}
        conditions = {one.get("type"): one for one in status.get("conditions") or ()}
        ready: Mapping[str, Any] = conditions.get("Ready") or {}
        allocatable, capacity = _amounts(status.get("allocatable")), _amounts(status.get("capacity"))
        handlers = status.get("runtimeHandlers")
        return cls(
            name=str(node["metadata"]["name"]),
            ready=str(ready.get("status") or "Unknown"),
            why_not_ready=str(ready.get("message") or ready.get("reason") or "it has never reported"),
            schedulable=not spec.get("unschedulable"),
            labels=node["metadata"].get("labels") or {},
            taints=tuple(one for one in spec.get("taints") or () if one.get("effect") in _KEEPS_OUT),
            allocatable=allocatable,
            capacity={name: max(held, allocatable[name]) for name, held in capacity.items()},
            handlers=None if handlers is None else frozenset(str(one.get("name") or "") for one in handlers),
            pods=amount((status.get("allocatable") or {}).get("pods"), 1),
            images=frozenset(str(name) for one in status.get("images") or () for name in one.get("names") or ()),
            architecture=str((status.get("nodeInfo") or {}).get("architecture") or ""),
            marks=marks(node),
            freezes=freezes(node),
        )

    def lasting(self) -> Self:
        """The same without the taints that come and go: those of its state, and those that say that it will go."""
        return replace(self, taints=tuple(one for one in self.taints if not _passing(one)))

    def takes(self, selector: Mapping[str, str], tolerations: Sequence[Mapping[str, object]]) -> bool:
        """Whether a pod with this node selector and these tolerations may run here, if there is room."""
        fits = all(self.labels.get(key) == value for key, value in selector.items())
        return fits and all(any(_tolerates(one, taint) for one in tolerations) for taint in self.taints)


def of_pool(pool: NodePool, selector: Mapping[str, str]) -> Node:
    """A node that may come, to judge by what fits on none.

    Args:
        pool: whose node it is.
        selector: labels that every sandbox asks of its node, which the pool's nodes have.
    """
    size = dict(zip(ORDER, pool.size, strict=True))
    held = {name: size[name] for name in _RESOURCES}
    return Node(
        name=f"a node of pool {pool.name}",
        ready="False",
        why_not_ready="it is not there yet",
        schedulable=True,
        labels={**selector, **pool.labels},
        taints=(),
        allocatable=held,
        capacity=held,
        handlers=None,
        pods=size[PODS],
    )


@dataclass(frozen=True, slots=True)
class Fleet:
    """The nodes that sandboxes of an installation may run on.

    Attributes:
        selector, tolerations: those of every sandbox.
        handler: the RuntimeClass's; nodes that are known not to have it are left out.
        overhead: what the RuntimeClass adds to the requests of every pod.
    """

    selector: Mapping[str, str]
    tolerations: Sequence[Mapping[str, object]]
    handler: str
    overhead: Amounts = NOTHING

    def eligible(self, nodes: Iterable[Node]) -> list[Node]:
        """The nodes that sandboxes may run on, ready or not."""
        return [one for one in nodes if one.takes(self.selector, self.tolerations) and self.isolates(one)]

    def lasting(self, nodes: Iterable[Node]) -> list[Node]:
        """Also those that are cordoned or drained: what fits on one of them alone is a matter of time."""
        return self.eligible([one.lasting() for one in nodes])

    def isolates(self, node: Node) -> bool:
        """Whether it has the runtime; also true if it does not report its runtimes."""
        return node.handlers is None or self.handler in node.handlers

    def ready(self, nodes: Iterable[Node]) -> int:
        """How many nodes can take a start now."""
        return sum(one.ready == "True" and one.schedulable for one in self.eligible(nodes))

    def request(self, spec: SandboxSpec) -> Amounts:
        """What the pod of a sandbox requests of its node."""
        return plus(amounts({**request_of(spec), PODS: 1}), self.overhead)

    def have(self, image: str, nodes: Iterable[Node]) -> bool:
        """Whether a node for sandboxes reports that it has this image."""
        reference = parse(image)
        # Nodes report an image by its tag and by its digest, and what was pulled by digest by that alone.
        full_name = f"{reference.name}@{reference.digest}" if reference.digest else str(reference)
        return any(full_name in one.images for one in self.eligible(nodes))

    def check(self, spec: SandboxSpec, nodes: Sequence[Node]) -> None:
        """Refuses a spec that fits on no node, even an empty one.

        Raises:
            Problem: unsupported, naming the option: a retry has no use. Only if there is no node for any sandbox, it is
                capacity_unavailable.
        """
        self.check_among(spec, self.eligible(nodes), self.lasting(nodes))

    def check_among(self, spec: SandboxSpec, eligible: Sequence[Node], lasting: Sequence[Node]) -> None:
        """As ``check``, of the nodes that ``eligible`` and ``lasting`` tell.

        Raises:
            Problem: as ``check``.
        """
        for key, value in spec.node_selector.items():
            if self.selector.get(key, value) != value:
                detail = f"node_selector {key}={value}: this installation runs sandboxes on {key}={self.selector[key]}"
                raise Problem("unsupported", detail, option="node_selector")
        if not eligible:
            raise Problem("capacity_unavailable", "there is no node for sandboxes now", retry_after_ms=1000)
        candidates = lasting
        if spec.node_selector:
            candidates = [one for one in lasting if one.takes(spec.node_selector, self.tolerations)]
        if not candidates:
            wanted = ", ".join(f"{key}={value}" for key, value in spec.node_selector.items())
            raise Problem("unsupported", f"no node for sandboxes has the labels {wanted}", option="node_selector")
        _fits(spec, dict(zip(ORDER, self.request(spec), strict=True)), candidates)


def _fits(spec: SandboxSpec, request: Mapping[str, int], candidates: Sequence[Node]) -> None:
    limits = {
        "cpu": spec.cpu_millicores.limit,
        "memory": spec.memory_bytes.limit,
        "ephemeral-storage": disk_bytes(spec),
    }
    for name, limit in limits.items():
        if all(one.capacity[name] < limit for one in candidates):
            most = max(candidates, key=lambda one: one.capacity[name])
            held = most.capacity[name]
            detail = f"{_LIMITS[name]} {limit} is more than the {held} of {most.name}, the largest node"
            raise Problem("unsupported", detail, option=_LIMITS[name], most=held)
    wanted = {name: needed for name, needed in request.items() if name in _RESOURCES}
    if any(all(one.allocatable[name] >= needed for name, needed in wanted.items()) for one in candidates):
        return
    for name, needed in wanted.items():
        largest = max(candidates, key=lambda one: one.allocatable[name])
        held = largest.allocatable[name]
        if held < needed:
            there = f"the largest node, {largest.name}, has {held}" if held else "no node has any"
            what = "devices for sandboxes on one node" if name == GPU else f"of {name} on one node (sidecar included)"
            detail = f"{_OPTIONS[name]} needs {needed} {what}; {there}"
            raise Problem("unsupported", detail, option=_OPTIONS[name], most=held)
    together = ", ".join(f"{needed} of {name}" for name, needed in wanted.items() if needed)
    raise Problem("unsupported", f"no single node has all of {together}", option="cpu_millicores.request")


def _passing(taint: Mapping[str, str]) -> bool:
    return str(taint.get("key")).startswith(_OF_STATE) or is_mark(taint)


def _amounts(told: Mapping[str, object] | None) -> Mapping[str, int]:
    return {name: amount((told or {}).get(name), scale) for name, scale in _RESOURCES.items()}


def _tolerates(toleration: Mapping[str, object], taint: Mapping[str, str]) -> bool:
    if toleration.get("effect") not in (None, "", taint.get("effect")):
        return False
    if not toleration.get("key"):
        return toleration.get("operator") == "Exists"
    same = toleration.get("operator") == "Exists" or (toleration.get("value") or "") == (taint.get("value") or "")
    return toleration.get("key") == taint.get("key") and same
