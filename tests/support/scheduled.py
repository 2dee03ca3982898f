"""A cluster in memory whose scheduler chooses a node for each pod some time after it was sent."""

import asyncio
from collections import Counter
from collections.abc import Coroutine, Sequence
from typing import Final

from controlplane.cluster import Boot, Started
from controlplane.model import SandboxSpec
from tests.support.fake_cluster import FakeCluster

# What the scheduler says of a pod that no node takes.
WORDS: Final = "0/2 nodes are available: 2 Insufficient cpu."


class Scheduled(FakeCluster):
    """Nodes with so much cpu each, and a scheduler that puts a pod on the emptiest that it was not asked to avoid.

    Args:
        cores: of each node.
        per_node: the limit of starts on one node.
        ready_s: from the placement to readiness.
        chosen_s: from the creation of a pod to its placement.
    """

    def __init__(
        self, cores: dict[str, float], *, per_node: int = 2, ready_s: float = 1.0, chosen_s: float = 0
    ) -> None:
        super().__init__(start_s=0.01, ready_s=None, slots=per_node * len(cores), starts_per_node=per_node)
        self.cores = cores
        self.get_ready_s = ready_s
        self.chosen_s = chosen_s
        self.starting: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.waiting: list[str] = []
        self.tasks: set[asyncio.Task[None]] = set()

    async def start(self, sandbox_id: str, spec: SandboxSpec, boot: Boot) -> Started:
        started = await super().start(sandbox_id, spec, boot)
        if not self.chosen_s:
            self.schedule(sandbox_id, boot.avoid)
        else:
            self.spawn(self.schedule_later(sandbox_id, boot.avoid))
        return started

    async def schedule_later(self, sandbox_id: str, avoid: Sequence[str]) -> None:
        await asyncio.sleep(self.chosen_s)
        self.schedule(sandbox_id, avoid)

    def schedule(self, sandbox_id: str, avoid: Sequence[str] = ()) -> None:
        wanted = self.held[sandbox_id].spec.cpu_millicores.request / 1000
        fitting = [node for node, free in self.cores.items() if free >= wanted]
        if not fitting:
            self.waiting.append(sandbox_id)
            self.place(sandbox_id, "", WORDS)
            return
        node = self.choose(sandbox_id, fitting, avoid)
        self.cores[node] -= wanted
        self.place(sandbox_id, node)
        self.spawn(self.run_on(sandbox_id, node))

    def choose(self, sandbox_id: str, fitting: Sequence[str], avoid: Sequence[str]) -> str:
        """One of the nodes on which it fits."""
        return min(fitting, key=lambda one: (one in avoid, -self.cores[one], one))

    def spawn(self, what: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(what)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def run_on(self, sandbox_id: str, node: str) -> None:
        self.starting[node] += 1
        self.most[node] = max(self.most[node], self.starting[node])
        await self.get_ready(sandbox_id, self.get_ready_s)
        self.starting[node] -= 1

    def add(self, node: str, cores: float) -> None:
        """A node comes, and the scheduler looks again at what has waited."""
        self.cores[node] = cores
        waiting, self.waiting = self.waiting, []
        for sandbox_id in waiting:
            self.schedule(sandbox_id)
