"""Which nodes a start prefers for its image, and how much. Pure.

Nodes that have the image come first. Of the others a few are next, by the bytes that they need not pull, and all starts
of an image choose the same ones in the same order, at every replica: by a hash of image and node. So a group on an
image that no node has comes to one node as long as that takes starts, then to the next one, and each pulls it once;
other images come to other nodes.

The sixteenth sandbox of an image on a node is where its others begin to count for less, so that the image spreads to a
further node for each dozens of sandboxes, and one node does not run them all.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from typing import Final
from zlib import crc32

# Of one pod: each is a term of its affinity, some 150 bytes, and a comparison for each node that the scheduler scores.
MOST_PREFERRED: Final = 8
# What a node has to have of an image to come before nodes that have nothing: less is soon pulled.
LEAST_SHARE: Final = 0.1
# Sandboxes of one image on one node. A group has 8 or 16; an estimate, no measurement stands behind it.
CROWD: Final = 16
FULL_WEIGHT: Final = 100
# Of nodes that have to pull: the first of them, and each one after it half as much. The scheduler adds its other scores
# (room, and how evenly it is used), which are worth about a half of this one: closer weights would scatter a group.
FIRST_WEIGHT: Final = 50


_MIXED_BY: Final = 0x9E3779B97F4A7C15
_LOW: Final = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Candidates:
    """The nodes that could take a start, room or not.

    Attributes:
        nodes: their names.
        shares: how much of the image those have that have some of it; 1 is all.
        running: how many sandboxes of the image those have that have any.
    """

    nodes: Sequence[str]
    shares: Mapping[str, float]
    running: Mapping[str, int]

    @property
    def whole(self) -> Sequence[str]:
        """Those that have all of it."""
        return [one for one in self.nodes if self.shares.get(one, 0.0) >= 1.0]


def preferred(
    image: str, start: str, candidates: Candidates, has_room: Callable[[str], bool]
) -> Sequence[tuple[str, int]]:
    """The nodes to prefer, with weights from 1 to 100; none where all are as good.

    Args:
        image: what tells it from others.
        start: what tells this start from others: those that have the choice among many nodes with the image take
            different ones.
        candidates: the nodes that could take it.
        has_room: whether one of them has room now.

    Cost: a hash for each candidate; 1 ms for 1,000 of them.
    """
    whole = candidates.whole
    if len(whole) == len(candidates.nodes):
        return ()
    weights = {one: _weight(candidates.running.get(one, 0)) for one in whole}
    rank = _ranked(start)
    there = _first(sorted(whole, key=lambda one: (-weights[one], rank(one))), has_room, MOST_PREFERRED)
    # One place at least for a node that has to pull: those that have the image may be crowded.
    places = max(1, MOST_PREFERRED - len(there))
    pulling = _first(pulled_next(image, candidates), has_room, places)
    kept = there[: MOST_PREFERRED - len(pulling)]
    return [
        *((node, weights[node]) for node in kept),
        *((node, max(1, FIRST_WEIGHT >> place)) for place, node in enumerate(pulling)),
    ]


def in_order(image: str, nodes: Iterable[str]) -> Sequence[str]:
    """Nodes that are as good as one another, in the order of an image."""
    return sorted(nodes, key=_ranked(image))


def pulled_next(image: str, candidates: Candidates) -> Sequence[str]:
    """The nodes that do not have the image, in the order in which they should get it."""
    rank, shares = _ranked(image), candidates.shares
    lacking = [one for one in candidates.nodes if shares.get(one, 0.0) < 1.0]
    return sorted(lacking, key=lambda one: (-_step(shares.get(one, 0.0)), rank(one)))


def _first(nodes: Iterable[str], has_room: Callable[[str], bool], count: int) -> Sequence[str]:
    return [*islice((one for one in nodes if has_room(one)), count)]


def _weight(running: int) -> int:
    return max(1, FULL_WEIGHT * min(CROWD, running + 1) // (running + 1))


def _step(share: float) -> int:
    """Shares in steps of a tenth: a small difference must not part the starts of a group."""
    return int(share * 10) if share >= LEAST_SHARE else 0


def _ranked(chosen_by: str) -> Callable[[str], int]:
    """An order of nodes that looks random, and is the same at every replica for the same text."""
    seed = int.from_bytes(blake2b(chosen_by.encode(), digest_size=8).digest())
    # The checksum alone keeps neighbours together: whatever is chosen first, the second would follow from it.
    return lambda node: ((crc32(node.encode()) ^ seed) * _MIXED_BY) & _LOW
