"""Which idle sandboxes make room for starts that no node has room for."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from controlplane.capacity.amounts import Amounts, fits, minus, plus
from controlplane.capacity.nodes import NodeRoom, Selector, meet
from controlplane.capacity.room import Room


@dataclass(frozen=True, slots=True)
class Short:
    """What a start needs that finds no room; see ``Room``."""

    request: Amounts
    selector: Selector
    off: Collection[str]


@dataclass(slots=True)
class _Node:
    node: NodeRoom
    free: Amounts
    idle: list[tuple[int, str, Amounts]]  # rank, the least needed first


def rivals(short: Collection[Short], room: Room, idle: Mapping[str, Selector]) -> list[str]:
    """The idle sandboxes that are on no node, and may come to one where a start is short of room.

    Args:
        short: the starts.
        room: which ones are on nodes.
        idle: those that nobody has claimed, with their node selectors.
    """
    selectors = [start.selector for start in short]
    unplaced = ((one, wanted) for one, wanted in idle.items() if one not in room)
    return [one for one, wanted in unplaced if any(meet(wanted, selector) for selector in selectors)]


def to_end(short: Iterable[Short], room: Room, leaving: Iterable[str], idle: Sequence[str], most: int) -> list[str]:
    """The idle sandboxes to end, so that as many of the starts as possible get room, the first ones first.

    What is free, and what comes free without that, serves starts before anything is ended for them. For each start
    all come from one node: that which has to give fewest.

    Args:
        short: the starts.
        room: what is free, and where the idle ones are.
        leaving: sandboxes that have ended and are on their nodes still.
        idle: those that nobody has claimed, the least needed first.
        most: so many are ended at most, or those that the first of the starts needs.
    """
    nodes = _nodes(room, leaving, idle)
    ended: list[str] = []
    for start in short:
        able = [one for one in nodes if one.node.takes(start.selector, start.off)]
        offers = [(one, given) for one in able if (given := _given(one, start.request)) is not None]
        if not offers:
            continue
        best, given = min(offers, key=lambda offer: (len(offer[1]), sum(rank for rank, _, _ in offer[1])))
        if ended and len(ended) + len(given) > most:
            break
        ended += [sandbox_id for _, sandbox_id, _ in given]
        best.idle = [one for one in best.idle if one not in given]
        best.free = minus(_with(best.free, given), start.request)
    return ended


def _nodes(room: Room, leaving: Iterable[str], idle: Sequence[str]) -> list[_Node]:
    nodes = {one.node.name: _Node(one.node, one.free, []) for one in room.free() if not one.node.closed}
    for sandbox_id in leaving:
        if (at := room.pod(sandbox_id)) is not None and (node := nodes.get(at[0])) is not None:
            node.free = plus(node.free, at[1])
    for rank, sandbox_id in enumerate(idle):
        if (at := room.pod(sandbox_id)) is not None and (node := nodes.get(at[0])) is not None:
            node.idle.append((rank, sandbox_id, at[1]))
    return list(nodes.values())


def _given(node: _Node, request: Amounts) -> list[tuple[int, str, Amounts]] | None:
    """What has to go on a node for a request; None: all that is idle there would not be enough."""
    given: list[tuple[int, str, Amounts]] = []
    free, offered = node.free, iter(node.idle)
    while not fits(free, request):
        one = next(offered, None)
        if one is None:
            return None
        given.append(one)
        free = plus(free, one[2])
    # Some of the first ones may not be needed beside the last.
    for one in list(given):
        if fits(minus(free, one[2]), request):
            given.remove(one)
            free = minus(free, one[2])
    return given


def _with(free: Amounts, given: Iterable[tuple[int, str, Amounts]]) -> Amounts:
    for _, _, amounts in given:
        free = plus(free, amounts)
    return free
