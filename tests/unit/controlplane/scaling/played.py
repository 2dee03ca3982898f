"""A played cluster with a played provider: sandboxes come, are claimed and end, and nodes take their time."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from controlplane.capacity import Amounts
from controlplane.capacity.amounts import fits, minus, plus
from controlplane.scaling.decisions import Decision, Decisions
from controlplane.scaling.kinds import Kind
from controlplane.scaling.node_pool import NodePool
from controlplane.scaling.planner import Demand
from controlplane.scaling.seen import Ask, Cordon, Empty, Group, Machine, Remove, SeenNode, Uncordon

TURN_MS = 5_000
DOWN_AFTER_MS = 60_000


@dataclass
class Box:
    """A sandbox; an idle one is of a pool, ready and not claimed."""

    kind: Kind
    node: str = ""
    idle: bool = False


@dataclass
class Node:
    """A machine, and its node once it has come."""

    pool: NodePool
    comes_ms: int
    cordoned: bool = False
    ready: bool = False
    failed: str = ""


@dataclass
class Played:
    """The cluster.

    Attributes:
        arrives_ms: how long a machine takes; None: for ever.
        pools_want: how many idle sandboxes of each kind pools keep.
    """

    pools: list[NodePool]
    arrives_ms: int | None = 90_000
    now_ms: int = 1_000_000
    boxes: dict[str, Box] = field(default_factory=dict)
    machines: dict[str, Node] = field(default_factory=dict)
    targets: Counter[str] = field(default_factory=Counter)
    pools_want: Counter[Kind] = field(default_factory=Counter)
    silent: set[str] = field(default_factory=set)
    made: int = 0
    removed: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.decisions = Decisions(self.pools, DOWN_AFTER_MS)

    def create(self, kind: Kind, count: int = 1, *, idle: bool = False) -> None:
        for _ in range(count):
            self.made += 1
            self.boxes[f"sb-{self.made}"] = Box(kind, idle=idle)

    def claim(self) -> bool:
        """Gives an idle sandbox to an owner."""
        found = next((one for one in self.boxes.values() if one.idle and one.node), None)
        if found is not None:
            found.idle = False
        return found is not None

    def end(self, count: int) -> None:
        for name in [name for name, one in self.boxes.items() if not one.idle][:count]:
            del self.boxes[name]

    def free(self, name: str) -> Amounts:
        free = self.machines[name].pool.size
        for one in self.boxes.values():
            if one.node == name:
                free = minus(free, one.kind.request)
        return free

    def turn(self, act: bool = True) -> Decision:
        """Time goes on; pools refill, the scheduler places, the scaler decides and acts."""
        self.now_ms += TURN_MS
        for machine in self.machines.values():
            machine.ready = machine.ready or (machine.comes_ms <= self.now_ms and not machine.failed)
        for kind, count in self.pools_want.items():
            self.create(kind, count - sum(one.idle and one.kind == kind for one in self.boxes.values()), idle=True)
        self._schedule()
        waiting: Counter[tuple[Kind, bool]] = Counter(
            (one.kind, one.idle) for one in self.boxes.values() if not one.node
        )
        demands = [Demand(kind, n, "pool" if idle else "waiting") for (kind, idle), n in waiting.items()]
        nodes = [self._seen(name) for name, one in self.machines.items() if one.ready]
        groups = {one.name: self._group(one) for one in self.pools}
        decided = self.decisions.turn(demands, nodes, groups, self.now_ms)
        if act:
            for step in decided.steps:
                self._do(step)
        return decided

    def _schedule(self) -> None:
        open_nodes = {name: self.free(name) for name, one in self.machines.items() if one.ready and not one.cordoned}
        for box in self.boxes.values():
            if box.node:
                continue
            for name, free in open_nodes.items():
                if fits(free, box.kind.request) and self.machines[name].pool.takes(dict(box.kind.selector)):
                    box.node, open_nodes[name] = name, minus(free, box.kind.request)
                    break

    def _seen(self, name: str) -> SeenNode:
        one, there = self.machines[name], [box for box in self.boxes.values() if box.node == name]
        idle = Counter(box.kind for box in there if box.idle)
        busy = sum(not box.idle for box in there)
        return SeenNode(
            name,
            self.free(name),
            one.pool.labels,
            dict(idle),
            busy,
            open=not one.cordoned,
            leaving=one.cordoned,
        )

    def _group(self, pool: NodePool) -> Group | str:
        if pool.name in self.silent:
            return "it does not answer"
        mine = [
            Machine(name, name if one.ready else "", one.failed)
            for name, one in self.machines.items()
            if one.pool == pool
        ]
        return Group(self.targets[pool.name], mine)

    def _do(self, step: Ask | Cordon | Uncordon | Empty | Remove) -> None:
        pool = next(one for one in self.pools if one.name == step.pool)
        assert pool.name not in self.silent
        if isinstance(step, Ask):
            assert step.target <= pool.most
            self.targets[pool.name] = step.target
            while sum(one.pool == pool for one in self.machines.values()) < step.target:
                self.made += 1
                comes_ms = self.now_ms + self.arrives_ms if self.arrives_ms is not None else 1 << 60
                self.machines[f"{pool.name}-{self.made}"] = Node(pool, comes_ms)
        elif isinstance(step, Cordon | Uncordon):
            self.machines[step.node].cordoned = isinstance(step, Cordon)
        elif isinstance(step, Empty):
            for name in [name for name, one in self.boxes.items() if one.node == step.node and one.idle]:
                del self.boxes[name]
        else:
            for machine in step.machines:
                assert not any(one.node == machine.id for one in self.boxes.values()), "a node with sandboxes"
                assert self.machines[machine.id].cordoned or not self.machines[machine.id].ready
                del self.machines[machine.id]
                self.removed.append(machine.id)
                self.targets[pool.name] -= 1

    def used(self) -> Amounts:
        total: Amounts = (0, 0, 0, 0, 0)
        for one in self.boxes.values():
            total = plus(total, one.kind.request)
        return total
