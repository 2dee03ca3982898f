"""``Kind``: what is equal for sandboxes that fit the same nodes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from controlplane.capacity import NOTHING, Amounts

# Of one plan, whose cost grows with them; callers choose what they request.
MOST_KINDS: Final = 32


@dataclass(frozen=True, slots=True)
class Kind:
    """What sandboxes ask of a node.

    Attributes:
        request: what each requests of its node.
        selector: labels that its node must have.
    """

    request: Amounts
    selector: tuple[tuple[str, str], ...] = ()


def bounded(wanted: Mapping[Kind, int]) -> Mapping[Kind, int]:
    """At most ``MOST_KINDS``: if there are more, requests are rounded up, and of what is left the most frequent stay.

    Those that are left out come when others have their place.
    """
    if len(wanted) <= MOST_KINDS:
        return wanted
    rounded: dict[Kind, int] = {}
    for kind, count in wanted.items():
        cpu, memory, disk, gpu, pods = kind.request
        larger = Kind((_up(cpu), _up(memory), _up(disk), gpu, pods), kind.selector)
        rounded[larger] = rounded.get(larger, 0) + count
    most = sorted(rounded, key=lambda one: (-rounded[one], one.request, one.selector))[:MOST_KINDS]
    return {kind: rounded[kind] for kind in most}


def scaled(request: Amounts, count: int) -> Amounts:
    """So many times a request."""
    if not count:
        return NOTHING
    cpu, memory, disk, gpu, pods = request
    return cpu * count, memory * count, disk * count, gpu * count, pods * count


def _up(amount: int) -> int:
    """The next power of two."""
    return 1 << (amount - 1).bit_length() if amount > 0 else 0
