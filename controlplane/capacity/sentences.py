"""What the nodes have left, in words."""

from collections.abc import Collection
from typing import Final

from controlplane.capacity.amounts import ORDER, Amounts, words
from controlplane.capacity.nodes import Selector
from controlplane.capacity.occupied import Occupied, scarcest

# Nodes that a sentence names.
MOST_NAMED: Final = 2


def tell(occupied: Occupied, request: Amounts, selector: Selector, off: Collection[str]) -> str:
    """What the nodes have left of what such a sandbox needs, those with the most room first.

    What is reserved for starts under way is named: no pod there requests it yet.

    Args:
        occupied: the nodes.
        request: what it requests.
        selector: see ``NodeRoom.takes``.
        off: the same.

    For example: ``node a has 0.3 cpu left, node b has 96 MiB of memory left, 3 more have no more; each needs 0.5
    cpu and 288 MiB of memory``.
    """
    nodes = occupied.open(selector, off)
    if not nodes:
        return _none_open(occupied, selector, off)
    rooms = [(*scarcest(occupied.free_of(one.name), request), one.name) for one in nodes]
    rooms.sort(key=lambda room: (-room[0], room[3]))
    said = [_left(occupied, name, resource, left) for _, resource, left, name in rooms[:MOST_NAMED]]
    if more := len(rooms) - len(said):
        said.append(f"{more} more {'has' if more == 1 else 'have'} no more")
    scarce = {resource for _, resource, _, _ in rooms[:MOST_NAMED]}
    needs = [words(name, want, up=True) for name, want in zip(ORDER, request, strict=True) if name in scarce]
    return f"{', '.join(said)}; each needs {' and '.join(needs)}"


def _left(occupied: Occupied, name: str, resource: str, left: int) -> str:
    reserved = occupied.taken(name).reserved[ORDER.index(resource)]
    beside = f" beside {words(resource, reserved, up=True)} reserved for starts under way" if reserved else ""
    return f"node {name} has {words(resource, left)} left{beside}"


def _none_open(occupied: Occupied, selector: Selector, off: Collection[str]) -> str:
    labelled = [one for one in occupied.nodes.values() if one.labelled(selector)]
    if not labelled:
        return "no node for sandboxes has the labels that it asks for" if selector else "there is no node"
    able = [one for one in labelled if one.name not in off]
    if not able:
        return f"none of {len(labelled)} nodes mounts images lazily now"
    first = min(able, key=lambda one: one.name)
    return f"none of {len(able)} nodes takes sandboxes now: {first.name} {first.closed}"
