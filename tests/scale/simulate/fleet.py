"""The nodes of a simulation, by their numbers of claimed and unclaimed sandboxes; and who adds and removes them."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from controlplane.capacity import Amounts
from controlplane.scaling import Kind, NodePool
from controlplane.scaling.decisions import Decisions
from controlplane.scaling.growth import Growth
from controlplane.scaling.planner import Demand
from controlplane.scaling.seen import Ask, Cordon, Empty, Group, Machine, Remove, SeenNode, Uncordon

Counts = NDArray[np.int64]
# What a sandbox requests; a node has it for all its slots, and nothing else bounds it.
REQUEST: Amounts = (100, 1 << 28, 1 << 28, 0, 1)
KIND = Kind(REQUEST)
LABELS = {"pool": "simulated"}


@dataclass
class Nodes:
    """All nodes there may be, by number.

    Attributes:
        slots: of each node.
        busy: claimed sandboxes, and starts that callers wait for.
        idle: unclaimed ones.
        ready, leaving: which nodes are there, and which of them take no start any more.
        comes_s: when a node that was asked for is there; infinite: it was not.
    """

    most: int
    slots: int
    busy: Counts = field(init=False)
    idle: Counts = field(init=False)
    ready: NDArray[np.bool_] = field(init=False)
    leaving: NDArray[np.bool_] = field(init=False)
    comes_s: NDArray[np.float64] = field(init=False)

    def __post_init__(self) -> None:
        self.busy, self.idle = np.zeros(self.most, dtype=np.int64), np.zeros(self.most, dtype=np.int64)
        self.ready, self.leaving = np.zeros(self.most, dtype=bool), np.zeros(self.most, dtype=bool)
        self.comes_s = np.full(self.most, np.inf)

    def free(self) -> Counts:
        """Slots that may be taken now, by node."""
        return np.where(self.ready & ~self.leaving, self.slots - self.busy - self.idle, 0)

    def arrive(self, now_s: float) -> None:
        """Nodes that have come by now are ready."""
        come = self.comes_s <= now_s
        self.ready |= come
        self.comes_s[come] = np.inf

    @property
    def coming(self) -> int:
        """How many were asked for and are not there."""
        return int(np.isfinite(self.comes_s).sum())

    def ask(self, target: int, at_s: float) -> None:
        """More or fewer nodes are coming; never fewer than there are."""
        more = target - int(self.ready.sum()) - self.coming
        if more > 0:
            absent = np.flatnonzero(~self.ready & ~np.isfinite(self.comes_s))[:more]
            self.comes_s[absent] = at_s
        elif more < 0:
            self.comes_s[np.flatnonzero(np.isfinite(self.comes_s))[more:]] = np.inf


def placed(free: Counts, weight: Counts, count: int, per_node: int, *, packs: bool) -> Counts:
    """How many of `count` starts come to each node; fewer in all where there is no room.

    Args:
        free: slots by node.
        weight: how full each node is.
        count: starts.
        per_node: most that may start on a node.
        packs: fills the fullest node first; else all are filled alike, as the default scheduler does.
    """
    room = np.minimum(free, per_node)
    if packs:
        order = np.argsort(-weight, kind="stable")
        before = np.cumsum(room[order]) - room[order]
        taken = np.clip(count - before, 0, room[order])
        found = np.zeros_like(room)
        found[order] = taken
        return found
    if room.sum() <= count:
        return room
    # The level up to which all nodes are filled: those below it get what is missing.
    low, high = 0, int(weight.max() + room.max()) + 1
    while high - low > 1:
        level = (low + high) // 2
        low, high = (level, high) if np.clip(level - weight, 0, room).sum() <= count else (low, level)
    found = np.clip(low - weight, 0, room)
    rest = np.flatnonzero((found < room) & (weight + found <= low))[: count - int(found.sum())]
    found[rest] += 1
    return found


@dataclass
class Scaler:
    """The scaler's own decisions over these nodes, and a provider whose nodes take their time.

    Attributes:
        headroom: sandboxes for which room is kept free, as a share of those that live.
        arrival_s: what a node takes from the wish to Ready.
    """

    nodes: Nodes
    headroom: float
    arrival_s: float
    down_after_s: int
    removed: int = 0
    _decisions: Decisions = field(init=False)
    _growth: Growth = field(default_factory=Growth)
    _target: int = 0

    def __post_init__(self) -> None:
        cpu, memory, disk, gpu, _ = REQUEST
        slots = self.nodes.slots
        size: Amounts = (cpu * slots, memory * slots, disk * slots, gpu, slots)
        pool = NodePool("simulated", "grpc", "simulated", size, 1, self.nodes.most, LABELS)
        self._decisions = Decisions([pool], self.down_after_s * 1000)

    def turn(self, now_s: int, waiting: int, missing: int) -> None:
        """One turn: what it decides is done.

        Args:
            now_s: the time.
            waiting: starts that have no room.
            missing: sandboxes that pools miss.
        """
        nodes, now_ms = self.nodes, now_s * 1000
        live = int(nodes.busy.sum()) + waiting
        self._growth.see({KIND: live}, now_ms)
        ahead = self._growth.ahead(self._decisions.arrival_ms())
        demands = [
            Demand(KIND, waiting, "waiting"),
            Demand(KIND, missing, "pool"),
            *(Demand(kind, count, "ahead") for kind, count in ahead.items()),
            Demand(KIND, int(self.headroom * live), "headroom"),
        ]
        for step in self._decisions.turn(demands, self._seen(), {"simulated": self._group()}, now_ms).steps:
            match step:
                case Ask(target=target):
                    self._target = target
                    nodes.ask(target, now_s + self.arrival_s)
                case Cordon(node=name):
                    nodes.leaving[int(name)] = True
                case Uncordon(node=name):
                    nodes.leaving[int(name)] = False
                case Empty(node=name):
                    nodes.idle[int(name)] = 0
                case Remove(machines=machines):
                    self._remove(machines)

    def _remove(self, machines: tuple[Machine, ...]) -> None:
        nodes = self.nodes
        for one in machines:
            at = int(one.id)
            assert not nodes.busy[at], "a node with a claimed sandbox was removed"
            nodes.ready[at] = nodes.leaving[at] = False
            nodes.comes_s[at], nodes.idle[at] = np.inf, 0
        self._target -= len(machines)
        self.removed += len(machines)

    def _seen(self) -> list[SeenNode]:
        nodes = self.nodes
        free = nodes.slots - nodes.busy - nodes.idle
        return [self._node(int(at), int(free[at])) for at in np.flatnonzero(nodes.ready)]

    def _node(self, at: int, slots: int) -> SeenNode:
        cpu, memory, disk, gpu, _ = REQUEST
        nodes, idle = self.nodes, int(self.nodes.idle[at])
        leaving = bool(nodes.leaving[at])
        free: Amounts = (cpu * slots, memory * slots, disk * slots, gpu, slots)
        held = {KIND: idle} if idle else {}
        return SeenNode(str(at), free, LABELS, held, int(nodes.busy[at]), open=not leaving, leaving=leaving)

    def _group(self) -> Group:
        there = [Machine(str(at), str(at)) for at in np.flatnonzero(self.nodes.ready)]
        coming = [Machine(str(at)) for at in np.flatnonzero(np.isfinite(self.nodes.comes_s))]
        return Group(max(self._target, len(there) + len(coming)), [*there, *coming])
