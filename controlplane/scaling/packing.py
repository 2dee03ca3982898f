"""Packs what needs room on nodes: first on those that are there, then on new ones of the cheapest pools that fit.

Requests that are equal are packed together, largest first. The nodes that there are are filled in the order given. A
new node is filled with the mix of requests that leaves least of it unused, and the same mix is repeated for as many
nodes as there are requests for it: the steps depend on the kinds of requests, not on how many there are.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from controlplane.capacity import NOTHING, Amounts
from controlplane.capacity.amounts import GPU, ORDER, fits, minus, plus, times
from controlplane.scaling.kinds import Kind, scaled
from controlplane.scaling.node_pool import NodePool

_GPU_AT: Final = ORDER.index(GPU)


@dataclass(frozen=True, slots=True)
class Bin:
    """A node, or some equal ones.

    Attributes:
        name: of the node; of equal ones what they have in common.
        free: of each.
        nodes: how many they are.
        used: whether something was put on each of them.
    """

    name: str
    labels: Mapping[str, str]
    free: Amounts
    nodes: int = 1
    used: bool = False


@dataclass(frozen=True, slots=True)
class Opening:
    """A pool of which nodes may be added.

    Attributes:
        size: what sandboxes may request of a new node.
        room: how many nodes may be added.
    """

    pool: NodePool
    size: Amounts
    room: int


@dataclass(slots=True)
class Packed:
    """What came of it.

    Attributes:
        opened: how many nodes are to be added, by pool.
        put: how many have their place on these, by pool.
        left: what has no place, by kind.
    """

    opened: dict[str, int] = field(default_factory=dict)
    put: dict[str, int] = field(default_factory=dict)
    left: dict[Kind, int] = field(default_factory=dict)


def pack(wanted: Mapping[Kind, int], bins: list[Bin], openings: Sequence[Opening]) -> Packed:
    """Finds a place for all that is wanted.

    Args:
        wanted: how many of each kind.
        bins: the nodes that there are, in the order in which they are filled. Takes what is put on them, and opened
            nodes at its end; equal ones are split where they are filled differently.
        openings: pools of which nodes may be added; none is opened further than its ``room``.

    Cost: O(kinds x bins), whatever the numbers.
    """
    packed = Packed()
    left = {kind: count for kind in sorted(wanted, key=lambda one: _weight(one, openings)) if (count := wanted[kind])}
    _fill(left, bins)
    room = {one.pool.name: one.room for one in openings}
    while left:
        kind = next(iter(left))
        opening = _cheapest(kind, [one for one in openings if room[one.pool.name] > 0])
        if opening is None:
            packed.left[kind] = left.pop(kind)
            continue
        mix, free = _mix(left, opening, kind)
        name = opening.pool.name
        # The last nodes of a kind are mixed anew with what there is then.
        nodes = max(1, min(room[name], *(left[one] // count for one, count in mix.items())))
        room[name] -= nodes
        packed.opened[name] = packed.opened.get(name, 0) + nodes
        packed.put[name] = packed.put.get(name, 0) + nodes * sum(mix.values())
        # No node has such a name.
        bins.append(Bin(f"{name}/new", opening.pool.labels, free, nodes, used=True))
        for one, count in mix.items():
            _take(left, one, nodes * count)
    # What was opened for others may have room for what opens nothing itself.
    _fill(packed.left, bins)
    return packed


def _fill(left: dict[Kind, int], bins: list[Bin]) -> None:
    for kind in [*left]:
        selector = dict(kind.selector)
        at, count = 0, left[kind]
        while count > 0 and at < len(bins):
            one = bins[at]
            if fits(one.free, kind.request) and _takes(one.labels, selector):
                each = times(one.free, kind.request)
                put = min(count, each * one.nodes)
                filled = _split(one, kind.request, each, put)
                bins[at : at + 1] = filled
                at += len(filled) - 1
                count -= put
            at += 1
        _take(left, kind, left[kind] - count)


def _split(one: Bin, request: Amounts, each: int, put: int) -> list[Bin]:
    """Equal nodes after so many were put on them: full ones, one that is not full, and those that have none of it."""
    if one.nodes == 1:
        return [Bin(one.name, one.labels, minus(one.free, scaled(request, put)), used=True)]
    full, rest = divmod(put, each)
    parts = [(full, each), (1 if rest else 0, rest), (one.nodes - full - bool(rest), 0)]
    return [
        replace(one, free=minus(one.free, scaled(request, count)), nodes=nodes, used=one.used or count > 0)
        for nodes, count in parts
        if nodes
    ]


def _mix(left: Mapping[Kind, int], opening: Opening, first: Kind) -> tuple[dict[Kind, int], Amounts]:
    """What one new node is filled with, ``first`` at least once, and what is left free of it.

    Of each kind as large a part as of the others: so what requests much memory and what requests much cpu share nodes
    until the end.
    """
    size, pool = opening.size, opening.pool
    wanted = {one: count for one, count in left.items() if pool.takes(dict(one.selector)) and fits(size, one.request)}
    total = NOTHING
    for one, count in wanted.items():
        total = plus(total, scaled(one.request, count))
    nodes = max(1, *(-(-all_of // of_one) for all_of, of_one in zip(total, size, strict=True) if all_of > 0))
    mix = {one: part for one, count in wanted.items() if (part := count // nodes)}
    if first not in mix and not fits(_left(size, mix), first.request):
        mix = {}
    mix = _rest(size, mix, wanted, first)
    return mix, _left(size, mix)


def _rest(size: Amounts, mix: Mapping[Kind, int], wanted: Mapping[Kind, int], first: Kind) -> dict[Kind, int]:
    """A mix, and what fits beside it, ``first`` before others."""
    found, free = dict(mix), _left(size, mix)
    for one in sorted(wanted, key=lambda one: one is not first):
        if (count := min(times(free, one.request), wanted[one] - found.get(one, 0))) > 0:
            found[one] = found.get(one, 0) + count
            free = minus(free, scaled(one.request, count))
    return found


def _left(size: Amounts, mix: Mapping[Kind, int]) -> Amounts:
    for one, count in mix.items():
        size = minus(size, scaled(one.request, count))
    return size


def _cheapest(kind: Kind, openings: Sequence[Opening]) -> Opening | None:
    """Of pools of which a node takes one of a kind: one without devices that it does not need, then the cheapest."""
    selector, asks_gpu = dict(kind.selector), kind.request[_GPU_AT] > 0
    candidates = [one for one in openings if one.pool.takes(selector) and fits(one.size, kind.request)]

    def cost(one: Opening) -> tuple[bool, float, str]:
        spare = one.size[_GPU_AT] > 0 and not asks_gpu
        return spare, one.pool.price / times(one.size, kind.request), one.pool.name

    return min(candidates, key=cost, default=None)


def _weight(kind: Kind, openings: Sequence[Opening]) -> tuple[float, Amounts, tuple[tuple[str, str], ...]]:
    """Larger ones first: by the largest part of a node that one takes."""
    sizes = [one.size for one in openings] or [(64_000, 256 << 30, 1 << 40, 8, 256)]
    parts = [
        want / size
        for whole in sizes
        for want, size in zip(kind.request[:-1], whole[:-1], strict=True)
        if size and want > 0
    ]
    return -max(parts, default=0.0), kind.request, kind.selector


def _takes(labels: Mapping[str, str], selector: Mapping[str, str]) -> bool:
    return not selector or all(labels.get(key) == value for key, value in selector.items())


def _take(left: dict[Kind, int], kind: Kind, count: int) -> None:
    left[kind] -= count
    if left[kind] <= 0:
        del left[kind]
