"""``Decisions``: from what is seen, turn by turn, what is done about each node pool. No clock, no client.

A node that nothing has needed for long is cordoned (``Cordon``), its idle sandboxes are ended (``Empty``), and once no
sandbox is on it, the provider is told to remove it (``Remove``). A sandbox that is claimed meanwhile, or a need that
comes back, opens it again (``Uncordon``). So no node with a claimed sandbox is ever given to a provider.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from controlplane.capacity import Amounts
from controlplane.capacity.amounts import plus
from controlplane.scaling.kinds import scaled
from controlplane.scaling.lost import Lost
from controlplane.scaling.node_pool import NodePool
from controlplane.scaling.pace import Pace
from controlplane.scaling.planner import Demand, Plan, PoolNode, PoolPlan, PoolState, plan
from controlplane.scaling.seen import Ask, Cordon, Empty, Group, Machine, PoolReport, Remove, SeenNode, Step, Uncordon

# Pods that the scheduler had placed before it heard of the cordon are seen by then.
SETTLED_MS: Final = 10_000
# Of a pool's nodes that leave at the same time; at least one does.
LEAVING_SHARE: Final = 0.1
_NEEDS: Final = {
    "waiting": "that wait",
    "pool": "for pools",
    "idle": "for pools",
    "ahead": "to come",
    "headroom": "spare",
}


@dataclass(frozen=True, slots=True)
class Decision:
    """What one turn decides, and why."""

    steps: Sequence[Step]
    plan: Plan
    reports: Sequence[PoolReport]


@dataclass(slots=True)
class _Seen:
    """A pool in one turn.

    Attributes:
        trouble: why its provider tells nothing; empty: it does.
        nodes: its own.
        strangers: nodes with its labels that no machine names; one without a name may be behind any of them.
        lost: ids of machines whose nodes are not waited for any more.
        awaited: machines whose nodes are.
        coming: nodes that were asked for, are not there and are waited for.
        gone: of those that were asked for, how many have lost their nodes.
        told_target: what a provider that removes by itself works towards, whatever was asked for.
    """

    pool: NodePool
    group: Group
    trouble: str = ""
    nodes: Sequence[SeenNode] = ()
    strangers: Sequence[str] = ()
    lost: frozenset[str] = frozenset()
    awaited: Sequence[Machine] = ()
    coming: int = 0
    gone: int = 0
    told_target: int = 0

    @property
    def target(self) -> int:
        """How many nodes there are or will be."""
        return max(self.group.target, len(self.nodes))


@dataclass(slots=True)
class _Memory:
    """What is remembered of a node.

    Attributes:
        cordoned_ms: since when it leaves; None: it does not.
        was_ready: whether it has ever been.
    """

    cordoned_ms: int | None = None
    was_ready: bool = False


class Decisions:
    """Decides, and remembers what it has to between turns.

    Args:
        pools: the declared node pools.
        down_after_ms: a node goes only if nothing needed it for so long.
    """

    def __init__(self, pools: Sequence[NodePool], down_after_ms: int) -> None:
        self._pools = {one.name: one for one in pools}
        self._down_after_ms = down_after_ms
        self._paces = {one.name: Pace() for one in pools}
        self._lost = {one.name: Lost() for one in pools}
        self._memory: dict[str, _Memory] = {}
        self._wanted: dict[str, int] = {}  # of pools whose provider removes nodes by itself

    def arrival_ms(self) -> int:
        """How long the nodes of the slowest pool take to come."""
        return max(one.arrival_ms for one in self._paces.values())

    def asked(self, step: Ask) -> None:
        """Takes in that a provider was asked."""
        if step.pool in self._wanted:
            self._wanted[step.pool] = step.target

    def failed(self, pool: str, why: str, now_ms: int) -> None:
        """Takes in that a provider refused a step: the pool pauses."""
        self._paces[pool].failed(why, now_ms)

    def turn(
        self, demands: Sequence[Demand], nodes: Sequence[SeenNode], groups: Mapping[str, Group | str], now_ms: int
    ) -> Decision:
        """Decides.

        Args:
            demands: what needs room, but for the idle sandboxes that there are.
            nodes: all nodes that sandboxes may run on.
            groups: by pool what its provider tells, or why it tells nothing.
            now_ms: the time.
        """
        self._remember(nodes)
        seen = self._see(nodes, groups, now_ms)
        states = [self._state(one, now_ms) for one in seen]
        owners = {node.name: one.pool.name for one in seen if not one.trouble for node in one.nodes}
        packable = [
            _pool_node(one, owners.get(one.name, "")) for one in nodes if one.open or (one.leaving and one.opens)
        ]
        kept = [
            Demand(kind, count, "idle")
            for one in nodes
            if one.name in owners and not one.busy
            for kind, count in one.idle.items()
        ]
        planned = plan([*demands, *kept], packable, states)
        steps = {one.pool.name: self._steps(one, planned.pools[one.pool.name], now_ms) for one in seen}
        reports = [
            self._report(one, state, steps[one.pool.name], now_ms) for one, state in zip(seen, states, strict=True)
        ]
        return Decision([step for mine in steps.values() for step in mine], planned, reports)

    def _remember(self, nodes: Sequence[SeenNode]) -> None:
        self._memory = {one.name: self._memory.get(one.name, _Memory()) for one in nodes}
        for one in nodes:
            memory = self._memory[one.name]
            memory.was_ready = memory.was_ready or one.ready
            if not one.leaving:
                memory.cordoned_ms = None

    def _see(self, nodes: Sequence[SeenNode], groups: Mapping[str, Group | str], now_ms: int) -> Sequence[_Seen]:
        by_name = {one.name: one for one in nodes}
        found: list[_Seen] = []
        for name, pool in self._pools.items():
            told = groups.get(name, "its provider has told nothing")
            if isinstance(told, str):
                found.append(_Seen(pool, Group(0), told))
                continue
            # A provider may name any node: only one that has the pool's labels is the pool's, and of one pool.
            names = {one.node for one in told.machines} if told.names else by_name.keys()
            mine = [by_name[one] for one in sorted(names & by_name.keys()) if _has(by_name[one].labels, pool.labels)]
            for one in mine:
                del by_name[one.name]
            found.append(self._expect(_Seen(pool, told, "", mine), now_ms))
        for seen in found:
            seen.strangers = sorted(name for name, node in by_name.items() if _has(node.labels, seen.pool.labels))
        return found

    def _expect(self, one: _Seen, now_ms: int) -> _Seen:
        """Judges whether its nodes come. One that was Ready and is not any more is lost, not to come."""
        pace, within_s = self._paces[one.pool.name], one.pool.arrives_within_s
        if not one.group.names:
            # Sandboxes displace placeholders, which then ask for nodes that nobody has decided on.
            one.told_target = one.group.target
            one.group = replace(one.group, target=self._wanted.setdefault(one.pool.name, one.group.target))
        machines, lost = one.group.machines, self._lost[one.pool.name]
        there = {node.name for node in one.nodes if self._memory[node.name].was_ready}
        one.lost = lost.see(machines, {node.name for node in one.nodes}, there, within_s, now_ms)
        one.awaited = [machine for machine in machines if machine.node not in there and machine.id not in one.lost]
        # Beyond the target are those that a provider removes already.
        one.gone = max(0, len(one.lost) - max(0, len(machines) - one.group.target))
        one.coming = max(0, min(one.group.target, one.pool.most) - len(there) - one.gone)
        pace.see(len(there), one.coming, 1000 * within_s, now_ms)
        if failed := next((machine for machine in one.awaited if machine.failed), None):
            pace.failed(f"{failed.id}: {failed.failed}", now_ms)
        elif pace.late or lost.trouble:
            pace.failed(lost.trouble or f"a node did not come within {within_s} s", now_ms)
        return one

    def _state(self, one: _Seen, now_ms: int) -> PoolState:
        pace = self._paces[one.pool.name]
        paused = pace.paused(now_ms)
        closed = f"cannot be asked: {one.trouble}" if one.trouble else f"pauses: {pace.trouble}" if paused else ""
        expected = 0 if pace.late else one.coming - sum(bool(machine.failed) for machine in one.awaited)
        return PoolState(one.pool, _size(one), one.target, max(0, expected), one.gone, closed)

    def _steps(self, one: _Seen, planned: PoolPlan, now_ms: int) -> Sequence[Step]:
        if one.trouble:
            return ()
        pace, held = self._paces[one.pool.name], sum(not node.empty for node in one.nodes)
        old = pace.spared(len(planned.spare) + planned.spare_coming, self._down_after_ms, now_ms)
        steps: list[Step] = []
        if planned.more:
            pace.needed()
            steps.append(Ask(one.pool.name, one.target + planned.more, _needs(planned), held))
        if not one.group.names:
            return steps or self._kept(one, old, held)
        of_coming = min(old, planned.spare_coming)
        steps += self._leaving(one, planned, now_ms)
        steps += [] if planned.more else self._given_up(one, of_coming)
        steps += self._cordons(one, planned, old - of_coming, now_ms)
        return steps

    def _kept(self, one: _Seen, old: int, held: int) -> Sequence[Step]:
        """Of a provider that removes by itself: as many as are wanted, whatever sandboxes have displaced."""
        target, why = one.group.target, "as before, beside what sandboxes have displaced"
        if self._paces[one.pool.name].late:
            target, why = target - one.coming, f"not there within {one.pool.arrives_within_s} s"
        elif old:
            target, why = min(target, len(one.nodes) + one.coming - old), self._unneeded
        target = max(one.pool.least, target)
        return [Ask(one.pool.name, target, why, held)] if target != one.told_target else []

    @property
    def _unneeded(self) -> str:
        return f"not needed for {self._down_after_ms // 1000} s"

    def _leaving(self, one: _Seen, planned: PoolPlan, now_ms: int) -> Sequence[Step]:
        """Goes on with nodes that are leaving."""
        machines = {machine.node: machine for machine in one.group.machines}
        steps: list[Step] = []
        going: list[Machine] = []
        for node in (node for node in one.nodes if node.leaving):
            memory = self._memory[node.name]
            since_ms = memory.cordoned_ms = now_ms if memory.cordoned_ms is None else min(memory.cordoned_ms, now_ms)
            if node.busy:
                steps.append(Uncordon(one.pool.name, node.name, "a sandbox there was claimed"))
            elif node.name in planned.back:
                steps.append(Uncordon(one.pool.name, node.name, "it is needed again"))
            elif node.idle:
                steps.append(Empty(one.pool.name, node.name, self._unneeded))
            elif node.empty and now_ms - since_ms >= SETTLED_MS:
                going.append(machines[node.name])
        return [*steps, Remove(one.pool.name, tuple(going), self._unneeded)] if going else steps

    def _given_up(self, one: _Seen, spare: int) -> Sequence[Step]:
        """Takes back what has failed, did not come in time, or is not needed any more and not there yet."""
        late, by_name = self._paces[one.pool.name].late, {node.name: node for node in one.nodes}
        unborn: list[Machine] = []
        for machine in one.group.machines:
            node = by_name.get(machine.node)
            # Of a node that is not the pool's, or not named, it is not known what runs there.
            unborn_node = node is not None and node.empty and not self._memory[node.name].was_ready
            if unborn_node or not (machine.node or one.strangers):
                unborn.append(machine)
        failed = [machine for machine in unborn if machine.failed]
        lost = [machine for machine in unborn if machine.id in one.lost]
        why = f"not there within {one.pool.arrives_within_s} s"
        why = why if late else "failed" if failed else why if lost else self._unneeded
        if going := (unborn if late else failed or lost or unborn[:spare]):
            return [Remove(one.pool.name, tuple(going), why)]
        if one.strangers:
            return []  # a provider that leaves machines out may count these nodes among the unbegun
        unbegun = one.group.target - max(len(one.group.machines), len(one.nodes), one.pool.least)
        fewer = max(0, unbegun if late else min(spare, unbegun))
        return [Ask(one.pool.name, one.group.target - fewer, why)] if fewer else []

    def _cordons(self, one: _Seen, planned: PoolPlan, old: int, now_ms: int) -> Sequence[Step]:
        """Begins with further nodes, emptiest first."""
        leaving = sum(node.leaving for node in one.nodes)
        at_once = max(1, int(LEAVING_SHARE * len(one.nodes)))
        going = planned.spare[: max(0, min(old, at_once - leaving))]
        for name in going:
            self._memory[name].cordoned_ms = now_ms
        return [Cordon(one.pool.name, name, self._unneeded) for name in going]

    def _report(self, one: _Seen, state: PoolState, steps: Sequence[Step], now_ms: int) -> PoolReport:
        pace, machines, target = self._paces[one.pool.name], len(one.group.machines), one.group.target
        leaving = sum(node.leaving for node in one.nodes) - sum(isinstance(step, Uncordon) for step in steps)
        going = sum(isinstance(step, Cordon) for step in steps)
        given_up = sum(not machine.node for step in steps if isinstance(step, Remove) for machine in step.machines)
        asked = next((step.target for step in steps if isinstance(step, Ask)), one.target)
        said = [state.closed] if state.closed else []
        if machines > target:
            said.append(f"{machines} machines are there, and {target} were asked for")
        if one.lost:
            said.append(
                f"{len(one.lost)} machines, as {min(one.lost)}, have lost their nodes, and count to the maximum"
            )
        if one.strangers and (nameless := sum(not machine.node for machine in one.group.machines)):
            said.append(f"no machine names {one.strangers[0]}: none of the {nameless} without a node's name is removed")
        return PoolReport(
            one.pool,
            sum(node.open for node in one.nodes),
            one.coming,
            leaving,
            target,
            max(0, asked - leaving - going - given_up),
            "; ".join([*said, *(told(step) for step in steps)]),
            pace.paused_until_ms if pace.paused(now_ms) else 0,
        )


def told(step: Step) -> str:
    """A step in words."""
    if isinstance(step, Ask):
        return f"asks for {step.target} nodes: {step.why}"
    if isinstance(step, Remove):
        names = ", ".join(machine.node or machine.id for machine in step.machines[:3])
        more = f" and {len(step.machines) - 3} more" if len(step.machines) > 3 else ""
        return f"removes {names}{more}: {step.why}"
    verb = {Cordon: "cordons", Uncordon: "opens", Empty: "empties"}[type(step)]
    return f"{verb} {step.node}: {step.why}"


def _pool_node(one: SeenNode, pool: str) -> PoolNode:
    may_go = bool(pool) and not one.busy
    free = one.free
    for kind, count in one.idle.items() if may_go else ():
        free = plus(free, scaled(kind.request, count))
    return PoolNode(one.name, pool, free, one.labels, may_go, one.leaving, one.busy + one.idles)


def _size(one: _Seen) -> Amounts:
    """What a new node has: as declared, but no more than empty ones show."""
    empty = [node for node in one.nodes if node.open and node.empty]
    if not empty:
        return one.pool.size
    cpu, memory, disk, gpu, pods = (
        max(0, min(size, max(node.free[at] for node in empty))) for at, size in enumerate(one.pool.size)
    )
    return cpu, memory, disk, gpu, pods


def _has(labels: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    return all(labels.get(key) == value for key, value in wanted.items())


def _needs(planned: PoolPlan) -> str:
    said = [f"{count} {_NEEDS[need]}" for need, count in planned.needs.items() if count]
    return f"{planned.more} more for {' and '.join(said) if said else 'its minimum'}"
