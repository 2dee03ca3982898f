"""``Scaler``: sees, decides, acts and tells, one turn after the other, at the replica that holds the lease.

Each node pool has at most one task that calls its provider. A provider that hangs costs its own pool the turns until it
has answered or is given up; the others' go on.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import structlog

from controlplane.capacity.nodes import CORDONED
from controlplane.clock import Clock
from controlplane.cluster import Cluster
from controlplane.cluster.node_pools import NodePools
from controlplane.errors import Problem
from controlplane.lifecycle.admission.warm_starts import WarmStarts
from controlplane.lifecycle.record.recovering_store import RecoveringStore
from controlplane.lifecycle.scaling.report import ScalerReport
from controlplane.lifecycle.scaling.sandbox_counts import OnNode, SandboxCounts
from controlplane.lifecycle.starting.without_node import without_node
from controlplane.model import Sandbox, SandboxSpec
from controlplane.scaling import Kind, NodePool, ScalingOptions
from controlplane.scaling.decisions import Decisions, told
from controlplane.scaling.growth import Growth
from controlplane.scaling.planner import Demand
from controlplane.scaling.seen import Ask, Cordon, Empty, Group, Remove, SeenNode, Step, Uncordon
from controlplane.telemetry import Metrics, ScalerStep

EVERY_S: Final = 5.0
# Providers are waited for so long before the turn goes on without those that have not answered.
LOOK_WITHIN_S: Final = 3.0
NOTE: Final = "scaler"
NOTE_MS: Final = 60_000
# ``end.by`` of idle sandboxes whose node goes.
BY: Final = "scaler"
_STEPS: Final[Mapping[type[Step], ScalerStep]] = {
    Ask: "ask",
    Cordon: "cordon",
    Uncordon: "uncordon",
    Empty: "empty",
    Remove: "remove",
}
_ANY: Final = 1 << 30
_DEFAULT: Final = SandboxSpec(image="default")


class Scaler:
    """See above; ``turn`` is one turn.

    Attributes:
        sandbox_counts: subscribes to the ledger.
        report: of this replica's last turn.

    Args:
        options: what it may do.
        node_pools: adds and removes nodes.
        cluster: knows the nodes and what is on them.
        store: has the starts that wait at all replicas.
        warm: ends idle sandboxes.
        missing: templates of pools at a time (Unix ms), and how many starts of each are needed that have not begun.
        clock: the time of day.
        metrics: counts steps and failures.
        group: what calls providers runs in it.
        max_sandboxes: of the installation; 0: no limit.
    """

    def __init__(
        self,
        options: ScalingOptions,
        node_pools: NodePools,
        cluster: Cluster,
        store: RecoveringStore,
        *,
        warm: WarmStarts,
        missing: Callable[[int], Sequence[tuple[SandboxSpec, int]]],
        clock: Clock,
        metrics: Metrics,
        group: asyncio.TaskGroup,
        max_sandboxes: int,
    ) -> None:
        self._options = options
        self._max_sandboxes = max_sandboxes
        self._node_pools = node_pools
        self._cluster = cluster
        self._store = store
        self._warm = warm
        self._missing = missing
        self._clock = clock
        self._metrics = metrics
        self._group = group
        self.sandbox_counts = SandboxCounts(cluster.request)
        self.report = ScalerReport(0, options.dry_run)
        self._decisions = Decisions(options.pools, options.down_after_ms)
        self._growth = Growth()
        self._calls: dict[str, asyncio.Task[None]] = {}
        self._groups: dict[str, Group | str] = {}
        self._turned_s = 0.0
        self._log = structlog.get_logger("scaler")

    async def turn(self) -> None:
        """Sees, decides, begins to act, and tells.

        Raises:
            Problem: the store's.
        """
        loop = asyncio.get_running_loop()
        if loop.time() - self._turned_s > 3 * EVERY_S:
            # Another replica has decided meanwhile, or none: what is remembered may be over.
            self._decisions = Decisions(self._options.pools, self._options.down_after_ms)
        self._turned_s = loop.time()
        room = self._cluster.room
        if room is None or not room.known:
            return  # nobody tells what is free: nothing can be decided
        await self._look()
        waiting = await without_node(self._store, self._cluster, self._clock.now_ms())
        now_ms = self._clock.now_ms()
        demands = self._demands(waiting, now_ms)
        decision = self._decisions.turn(demands, self._nodes(), self._groups, now_ms)
        report = ScalerReport.of(decision, now_ms, dry_run=self._options.dry_run)
        if not self._options.dry_run:
            for pool in self._options.pools:
                if steps := [one for one in decision.steps if one.pool == pool.name]:
                    self._begin(pool, steps)
        self.report = report
        await self._leave(report)

    def close(self) -> None:
        """Ends the calls that are under way; the next turn, of any replica, sees what has become of them."""
        for one in self._calls.values():
            one.cancel()

    async def _look(self) -> None:
        """Asks all providers side by side; of those that have not answered nothing is known."""
        self._calls = {name: task for name, task in self._calls.items() if not task.done()}
        asked = []
        for pool in self._options.pools:
            if pool.name in self._calls:
                self._groups[pool.name] = "its provider has not answered yet"
            else:
                self._calls[pool.name] = task = self._group.create_task(
                    self._look_at(pool), name=f"node pool {pool.name}"
                )
                asked.append(task)
        if asked:
            _, late = await asyncio.wait(asked, timeout=LOOK_WITHIN_S)
            for pool in self._options.pools:
                if self._calls[pool.name] in late:
                    self._groups[pool.name] = "its provider has not answered yet"

    async def _look_at(self, pool: NodePool) -> None:
        try:
            self._groups[pool.name] = await self._node_pools.look(pool)
        except Problem as problem:
            self._fail(pool, "look", problem)
            self._groups[pool.name] = problem.detail[:200]
        except Exception as error:
            # A provider's nonsense must not end the control plane.
            self._log.exception("a node provider could not be read", node_pool=pool.name)
            self._metrics.provider_failed(pool.name, "internal")
            self._groups[pool.name] = f"{type(error).__name__} while it was read"

    def _demands(self, waiting: Sequence[Sandbox], now_ms: int) -> Sequence[Demand]:
        sandbox_counts, live = self.sandbox_counts, self.sandbox_counts.live(waiting)
        found = [Demand(sandbox_counts.kind(one.spec), 1, "pool" if one.unclaimed else "waiting") for one in waiting]
        found += [Demand(sandbox_counts.kind(spec), count, "pool") for spec, count in self._missing(now_ms)]
        self._growth.see(live, now_ms)
        left = max(0, self._max_sandboxes - sum(live.values())) if self._max_sandboxes else _ANY
        for kind, count in self._growth.ahead(self._decisions.arrival_ms()).items():
            found.append(Demand(kind, min(count, left), "ahead"))
            left -= min(count, left)
        if self._options.headroom:
            found.append(Demand(sandbox_counts.kind(_DEFAULT), self._options.headroom, "headroom"))
        return found

    def _nodes(self) -> Sequence[SeenNode]:
        room = self._cluster.room
        if room is None:
            return ()
        on_nodes, nothing = self.sandbox_counts.by_node(self._node_of), OnNode()
        found = []
        for one in room.free():
            there = on_nodes.get(one.node.name, nothing)
            # What is reserved is for starts that are among the demands.
            cpu, memory, disk, gpu, pods = (a + b for a, b in zip(one.free, one.reserved, strict=True))
            found.append(
                SeenNode(
                    name=one.node.name,
                    free=(cpu, memory, disk, gpu, pods),
                    labels=one.node.labels,
                    idle=dict[Kind, int](there.idle),
                    busy=max(0, one.sandboxes - there.idle.total() - there.ending),
                    ending=min(there.ending, one.sandboxes),
                    ready=self._node_pools.ready(one.node.name),
                    open=not one.node.closed,
                    leaving=self._node_pools.leaving(one.node.labels),
                    opens=one.node.closed in ("", CORDONED),
                )
            )
        return found

    def _begin(self, pool: NodePool, steps: Sequence[Step]) -> None:
        if (group := self._groups.get(pool.name)) is None or isinstance(group, str):
            return
        self._calls[pool.name] = self._group.create_task(
            self._act(pool, group, steps), name=f"node pool {pool.name} acts"
        )

    async def _act(self, pool: NodePool, group: Group, steps: Sequence[Step]) -> None:
        """Does the steps of one pool. After one that fails the next turn decides anew."""
        for step in steps:
            try:
                await self._do(pool, group, step)
            except Problem as problem:
                self._fail(pool, _STEPS[type(step)], problem)
                # One that was decided on older facts is decided anew; a provider that has no stock is left in peace.
                if isinstance(step, Ask) and problem.code != "conflict":
                    self._decisions.failed(pool.name, problem.detail[:200], self._clock.now_ms())
                return
            except Exception:
                self._log.exception("a step of the scaler failed", node_pool=pool.name, step=told(step))
                self._metrics.provider_failed(pool.name, "internal")
                return
            self._metrics.scaled(pool.name, _STEPS[type(step)])
            self._log.info("node pool", node_pool=pool.name, step=told(step))

    async def _do(self, pool: NodePool, group: Group, step: Step) -> None:
        if isinstance(step, Ask):
            await self._node_pools.ask(pool, group, step.target, step.held)
            self._decisions.asked(step)
        elif isinstance(step, Cordon):
            await self._node_pools.cordon(step.node)
        elif isinstance(step, Uncordon):
            await self._node_pools.uncordon(step.node)
        elif isinstance(step, Empty):
            for sandbox_id in self.sandbox_counts.idle_on(self._node_of, step.node):
                await self._warm.retire(sandbox_id, BY, f"its node {step.node} goes: {step.why}")
        else:
            await self._node_pools.remove(pool, group, step.machines)

    def _fail(self, pool: NodePool, what: str, problem: Problem) -> None:
        self._metrics.provider_failed(pool.name, problem.code)
        self._log.warning("a node provider failed", node_pool=pool.name, what=what, detail=problem.detail)

    def _node_of(self, sandbox_id: str) -> str:
        place = self._cluster.node_of(sandbox_id)
        return "" if place is None else place.node

    async def _leave(self, report: ScalerReport) -> None:
        """Leaves the report for all replicas."""
        await self._store.change_note(NOTE, lambda _: report.text(), NOTE_MS)
