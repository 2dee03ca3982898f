"""Node pools in memory: their nodes come into a fake cluster's room, and leave it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from controlplane.capacity import NodeRoom
from controlplane.errors import Problem
from controlplane.scaling import NodePool
from controlplane.scaling.seen import Group, Machine
from tests.support.fake_cluster import FakeCluster

LEAVING = "rollbox.dev/leaving"


@dataclass
class FakeNodePools:
    """Machines take `arrives_s`, or never come (None).

    Attributes:
        hangs: pools whose provider does not answer.
        errors: what it answers in the place of an answer.
    """

    cluster: FakeCluster
    arrives_s: float | None = 60.0
    hangs: set[str] = field(default_factory=set)
    errors: dict[str, Problem] = field(default_factory=dict)
    targets: dict[str, int] = field(default_factory=dict)
    machines: dict[str, str] = field(default_factory=dict)  # and the pools that they are of
    calls: list[str] = field(default_factory=list)
    made: int = 0

    def __post_init__(self) -> None:
        self._nodes: dict[str, NodeRoom] = {}
        self._version = 0
        self._coming: set[asyncio.Task[None]] = set()

    def ready(self, node: str) -> bool:
        return node in self._nodes

    def leaving(self, labels: Mapping[str, str]) -> bool:
        return LEAVING in labels

    async def look(self, pool: NodePool) -> Group:
        await self._answers(pool)
        machines = [
            Machine(one, one if one in self._nodes else "") for one, of in self.machines.items() if of == pool.name
        ]
        return Group(self.targets.get(pool.name, 0), machines, str(self._version))

    async def ask(self, pool: NodePool, group: Group, target: int, held: int) -> None:
        del held
        await self._change(pool, group, f"{pool.name} {target}")
        self.targets[pool.name] = target
        while sum(of == pool.name for of in self.machines.values()) < target:
            self.made += 1
            name = f"{pool.name}-{self.made}"
            self.machines[name] = pool.name
            task = asyncio.create_task(self._come(name, pool))
            self._coming.add(task)
            task.add_done_callback(self._coming.discard)

    async def remove(self, pool: NodePool, group: Group, machines: Sequence[Machine]) -> None:
        await self._change(pool, group, f"{pool.name} removes {' '.join(one.id for one in machines)}")
        for one in machines:
            assert self.cluster.room is not None
            assert not any(free.sandboxes for free in self.cluster.room.free() if free.node.name == one.id)
            del self.machines[one.id]
            self._nodes.pop(one.id, None)
            self.cluster.room.drop_node(one.id)
            self.targets[pool.name] -= 1

    async def cordon(self, node: str) -> None:
        self.calls.append(f"cordon {node}")
        self._put(replace(self._nodes[node], closed="is cordoned", labels={**self._nodes[node].labels, LEAVING: "x"}))

    async def uncordon(self, node: str) -> None:
        self.calls.append(f"uncordon {node}")
        labels = {key: value for key, value in self._nodes[node].labels.items() if key != LEAVING}
        self._put(replace(self._nodes[node], closed="", labels=labels))

    async def _come(self, name: str, pool: NodePool) -> None:
        await asyncio.sleep(3600 if self.arrives_s is None else self.arrives_s)
        if name in self.machines:
            self._put(NodeRoom(name, pool.size, pool.labels))

    async def _change(self, pool: NodePool, group: Group, what: str) -> None:
        await self._answers(pool)
        if group.version != str(self._version):
            raise Problem("conflict", f"{group.version} is not {self._version}")
        self._version += 1
        self.calls.append(what)

    async def _answers(self, pool: NodePool) -> None:
        if pool.name in self.hangs:
            await asyncio.sleep(20)
            raise Problem("upstream_timeout", f"the provider of {pool.name} has not answered within 20 s")
        if (error := self.errors.get(pool.name)) is not None:
            raise error

    def _put(self, node: NodeRoom) -> None:
        self._nodes[node.name] = node
        assert self.cluster.room is not None
        self.cluster.room.set_node(node)
