"""Plans the size of each node pool from what needs room and what the nodes have. Pure; no clock, no client, no memory.

What needs room comes in order of urgency (``Demand``): starts that wait, what pools miss, what is kept free. All of it
is packed on the nodes that there are before any node is asked for. Nodes that hold claimed sandboxes are filled first,
then the fullest of the others, so what is left over is on the emptiest ones: these are not needed.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

from controlplane.capacity import Amounts
from controlplane.capacity.amounts import ORDER, fits, words
from controlplane.scaling.kinds import Kind, bounded
from controlplane.scaling.node_pool import NodePool
from controlplane.scaling.packing import Bin, Opening, pack

# In order of urgency. Waiting: a start that has no pod on a node. Idle: an unclaimed sandbox on a node that may go.
# Pool: one that a pool misses. Ahead: what comes until a node is there, if it goes on so. Headroom: declared.
Need = Literal["waiting", "idle", "pool", "ahead", "headroom"]


@dataclass(frozen=True, slots=True)
class Demand:
    """So many of one kind need room."""

    kind: Kind
    count: int
    need: Need


@dataclass(frozen=True, slots=True)
class PoolNode:
    """A node that takes starts, or would if it were not leaving.

    Attributes:
        pool: the node pool that it belongs to; empty: none that may remove it.
        free: what is free there beside all pods; of one that may go: beside what is not an idle sandbox.
        may_go: it holds nothing but idle sandboxes, which are among the demands, so its pool may do without it.
        leaving: it is cordoned by the scaler, to be removed.
        sandboxes: how many are there.
    """

    name: str
    pool: str
    free: Amounts
    labels: Mapping[str, str] = field(default_factory=dict)
    may_go: bool = False
    leaving: bool = False
    sandboxes: int = 0


@dataclass(frozen=True, slots=True)
class PoolState:
    """A node pool as it is.

    Attributes:
        size: what a new node of it has for sandboxes.
        target: for how many nodes its provider was asked.
        coming: how many of these are not there yet and expected.
        gone: how many of these have lost their nodes: they count to the maximum, and not to the minimum.
        closed: why no node of it is asked for now; empty: some may be.
    """

    pool: NodePool
    size: Amounts
    target: int = 0
    coming: int = 0
    gone: int = 0
    closed: str = ""


@dataclass(frozen=True, slots=True)
class PoolPlan:
    """What becomes of a node pool.

    Attributes:
        more: how many nodes are to be asked for beyond its target.
        spare: nodes that nothing needs, emptiest first.
        spare_coming: of those that are coming, how many nothing needs.
        back: leaving nodes that are needed again.
        needs: sandboxes by need that have their place on nodes to be asked for.
    """

    more: int = 0
    spare: tuple[str, ...] = ()
    spare_coming: int = 0
    back: tuple[str, ...] = ()
    needs: Mapping[Need, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Unplaced:
    """What has no place on any node that there is or may be.

    Attributes:
        why: a sentence.
    """

    kind: Kind
    need: Need
    count: int
    why: str


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan for all node pools, by name."""

    pools: Mapping[str, PoolPlan]
    unplaced: Sequence[Unplaced] = ()


def plan(demands: Iterable[Demand], nodes: Sequence[PoolNode], pools: Sequence[PoolState]) -> Plan:
    """One plan. Safe to make at any time; what was asked for and is expected counts as if it were there.

    Cost: O(kinds x nodes).
    """
    bins = [*_there(nodes), *_coming(pools)]
    opened: dict[str, int] = {}
    needs: dict[str, dict[Need, int]] = {one.pool.name: {} for one in pools}
    unplaced: list[Unplaced] = []
    wishes = [*demands]
    for need in get_args(Need):
        wanted: dict[Kind, int] = {}
        for one in wishes:
            if one.need == need and one.count > 0:
                wanted[one.kind] = wanted.get(one.kind, 0) + one.count
        packed = pack(bounded(wanted), bins, _openings(pools, opened))
        for name, nodes_more in packed.opened.items():
            opened[name] = opened.get(name, 0) + nodes_more
            needs[name][need] = packed.put[name]
        unplaced += [Unplaced(kind, need, count, _why(kind, pools)) for kind, count in packed.left.items()]
    used = {one.name for one in bins if one.used}
    unused_coming = {one.name: one.nodes for one in bins if not one.used}
    found = {}
    for state in pools:
        name = state.pool.name
        mine = [one for one in nodes if one.pool == name]
        coming = unused_coming.get(f"{name}/coming", 0)
        found[name] = _of(state, mine, used, PoolPlan(opened.get(name, 0), (), coming, (), needs[name]))
    return Plan(found, unplaced)


def _there(nodes: Sequence[PoolNode]) -> list[Bin]:
    """Nodes in the order in which they are filled; those that have no room at all are left out unless they may go."""

    def order(one: PoolNode) -> tuple[bool, bool, int, int, str]:
        return one.leaving, one.may_go, -one.sandboxes, one.free[0], one.name

    return [
        Bin(one.name, one.labels, one.free)
        for one in sorted(nodes, key=order)
        if one.may_go or one.leaving or min(one.free[0], one.free[1], one.free[-1]) > 0
    ]


def _coming(pools: Sequence[PoolState]) -> list[Bin]:
    # Their names are none that a node may have.
    return [
        Bin(f"{one.pool.name}/coming", one.pool.labels, one.size, one.coming)
        for one in sorted(pools, key=lambda one: (one.pool.price, one.pool.name))
        if one.coming > 0
    ]


def _openings(pools: Sequence[PoolState], opened: Mapping[str, int]) -> list[Opening]:
    return [
        Opening(one.pool, one.size, room)
        for one in pools
        if not one.closed and (room := one.pool.most - one.target - opened.get(one.pool.name, 0)) > 0
    ]


def _of(state: PoolState, nodes: Sequence[PoolNode], used: set[str], packed: PoolPlan) -> PoolPlan:
    """The plan of a pool by what was packed, within its minimum."""
    more, spare_coming = packed.more, packed.spare_coming
    back = [one.name for one in nodes if one.leaving and one.name in used]
    staying = state.target - state.gone - sum(one.leaving for one in nodes) + len(back)
    if (lacking := state.pool.least - staying - more) > 0:
        again = [one.name for one in nodes if one.leaving and one.name not in back][:lacking]
        back += again
        may = 0 if state.closed else max(0, state.pool.most - state.target - more)
        more += min(lacking - len(again), may)
    # What is there is kept rather than what is coming.
    can_go = max(0, staying + more - state.pool.least)
    spare_coming = min(spare_coming, can_go)
    spare = [one for one in nodes if one.may_go and not one.leaving and one.name not in used]
    spare.sort(key=lambda one: (one.sandboxes, one.name))
    names = tuple(one.name for one in spare[: can_go - spare_coming])
    return PoolPlan(more, names, spare_coming, tuple(back), packed.needs)


def _why(kind: Kind, pools: Sequence[PoolState]) -> str:
    """Why a kind has no place, in a sentence."""
    selector = dict(kind.selector)
    wide = [one for one in pools if one.pool.takes(selector)]
    if not wide:
        return "no node pool has the labels that it asks for"
    large = [one for one in wide if fits(one.size, kind.request)]
    if not large:
        most = max(wide, key=lambda one: one.size[0])
        name, want, have = next(
            part for part in zip(ORDER, kind.request, most.size, strict=True) if part[1] > max(0, part[2])
        )
        return f"it needs {words(name, want, up=True)}, and a node of {most.pool.name} has {words(name, have)}"
    said = [
        f"{one.pool.name} {one.closed or f'has its maximum of {one.pool.most} nodes'}"
        for one in sorted(large, key=lambda one: one.pool.name)
    ]
    return "; ".join(said)
