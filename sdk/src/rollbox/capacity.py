"""What is free on the nodes, and what waits for room. Pure: JSON in, dataclasses out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, TypeVar

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Amounts:
    """So much of each resource, as sandboxes request it; `pods`: places for pods."""

    cpu_millicores: int = 0
    memory_bytes: int = 0
    disk_bytes: int = 0
    gpu: int = 0
    pods: int = 0


@dataclass(frozen=True, slots=True)
class NodeRoom:
    """A node that sandboxes may run on.

    Attributes:
        closed: why it takes no start now; empty: it takes some.
        allocatable: what pods may request there.
        free: of that, beside all pods there and what is reserved; negative where more is requested than there is.
        reserved: for starts whose pods are not seen there yet.
        sandboxes: how many of this installation are there.
        pods: how many of all namespaces.
        fits: how many more sandboxes of the default size.
    """

    name: str
    closed: str = ""
    allocatable: Amounts = Amounts()
    free: Amounts = Amounts()
    reserved: Amounts = Amounts()
    sandboxes: int = 0
    pods: int = 0
    fits: int = 0


@dataclass(frozen=True, slots=True)
class WaitingStart:
    """A start that fits on no node.

    Attributes:
        owner: empty: it is of a pool.
        pending: its pod is made and the scheduler places it nowhere; else no pod of it is made.
        until_ms: when it is refused (Unix ms).
        estimate_ms: how long it will wait if the queue moves as fast as lately; None: not known yet.
        why: what the nodes have left, or the scheduler's message.
    """

    sandbox_id: str
    owner: str = ""
    pool: str = ""
    pending: bool = False
    cpu_millicores: int = 0
    memory_bytes: int = 0
    gpu: int = 0
    since_ms: int = 0
    until_ms: int = 0
    estimate_ms: int | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class NodePool:
    """A node pool, as the scaler has seen and decided last.

    Attributes:
        provider: the kind of what adds and removes its nodes.
        min, max: how many it may have.
        ready: nodes that take starts.
        coming: nodes that were asked for and are not Ready.
        leaving: nodes that are being emptied.
        wanted: how many it is to have.
        why: what is done about it, and what is wrong with it; empty: nothing.
        paused_until_ms: until when no node of it is asked for (Unix ms); None: it does not pause.
    """

    name: str
    provider: str = ""
    min: int = 0
    max: int = 0
    ready: int = 0
    coming: int = 0
    leaving: int = 0
    wanted: int = 0
    why: str = ""
    paused_until_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Unplaced:
    """So many sandboxes of one size that fit on no node, there or to come.

    Attributes:
        need: `waiting`: starts; `idle`, `pool`: of pools; `ahead`: expected ones; `headroom`: declared.
    """

    count: int
    need: str = ""
    cpu_millicores: int = 0
    memory_bytes: int = 0
    gpu: int = 0
    why: str = ""


@dataclass(frozen=True, slots=True)
class Scaling:
    """What the scaler has decided last, whichever control plane it works at.

    Attributes:
        at_ms: when (Unix ms); None: it has decided nothing within the last minute.
        dry_run: it decides and does nothing.
        node_pools: by their declaration.
        steps: what it did then, or would have done.
        unplaced: the first of them; `unplaced_in_all` counts starts that wait alone.
    """

    at_ms: int | None = None
    dry_run: bool = False
    node_pools: list[NodePool] = field(default_factory=list)
    steps: list[str] = field(default_factory=list)
    unplaced: list[Unplaced] = field(default_factory=list)
    unplaced_in_all: int = 0


@dataclass(frozen=True, slots=True)
class Capacity:
    """Room on the nodes at one time, as the control plane that answered sees it.

    Attributes:
        known: whether it is known what is free; not on engines, which set nothing aside.
        nodes: by name, the first two thousand of `nodes_in_all`.
        free: of all nodes that take starts, together.
        fits: how many more sandboxes of the default size.
        sandboxes: how many of this installation are on all nodes.
        waiting: the first hundred of `waiting_in_all`, those at the control plane that answered first.
        pending_pods: how many starts of each control plane may have pods that fit nowhere; 0: no node can be added.
        scaling: what the scaler does; None: the installation has none.
    """

    known: bool
    nodes: list[NodeRoom] = field(default_factory=list)
    nodes_in_all: int = 0
    free: Amounts = Amounts()
    fits: int = 0
    sandboxes: int = 0
    waiting: list[WaitingStart] = field(default_factory=list)
    waiting_in_all: int = 0
    pending_pods: int = 0
    scaling: Scaling | None = None

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Capacity:
        """Read the wire form; fields that this version does not know are left out."""
        parts = {
            "nodes": [_node(one) for one in body.get("nodes", ())],
            "free": _read(Amounts, body.get("free", {})),
            "waiting": [_read(WaitingStart, one) for one in body.get("waiting", ())],
            "scaling": _scaling(body.get("scaling")),
        }
        return _read(cls, {**body, **parts})

    def to_json(self) -> dict[str, Any]:
        """Write the wire form again, for `--json`."""
        return asdict(self)


def _node(body: Mapping[str, Any]) -> NodeRoom:
    amounts = {name: _read(Amounts, body.get(name, {})) for name in ("allocatable", "free", "reserved")}
    return _read(NodeRoom, {**body, **amounts})


def _scaling(body: Mapping[str, Any] | None) -> Scaling | None:
    if body is None:
        return None
    pools = [_read(NodePool, one) for one in body.get("node_pools", ())]
    return _read(
        Scaling, {**body, "node_pools": pools, "unplaced": [_read(Unplaced, one) for one in body.get("unplaced", ())]}
    )


def _read(kind: type[_T], body: Mapping[str, Any]) -> _T:
    known = {item.name for item in fields(kind)}  # type: ignore[arg-type]
    return kind(**{name: value for name, value in body.items() if name in known})
