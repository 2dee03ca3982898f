"""``NearWaits``: a start waits a moment for a slot on a node that has its image, rather than have another one pull it.

The nodes that have an image are at their limit of starts for a second or two while a group begins on them. A start
that avoids them then makes a further node pull, which takes longer than that. So it gives its turn back, for
``WAITS_MS`` in all, and others go on meanwhile. No more wait for one image than its nodes take at once: the slots of
the next moment are for these, and those behind them would wait for nothing (figures: ``tests/bench/crowded_nodes.py``).
"""

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Final

from controlplane.clock import Clock
from controlplane.cluster import Cluster
from controlplane.model import SandboxSpec

# A start on a node that has its image takes one to two seconds, and a slot is freed then.
WAITS_MS: Final = 2_000
# Before the first look; each further pause is twice as long, up to the longest, so that a start looks six times. Not
# whenever a slot is freed: those who wait so give theirs back at each look, in two calls of the store.
FIRST_PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 0.5


class NearWaits:
    """The starts of this replica that wait so, or have.

    Args:
        nodes: know what they have.
        clock: the time of day.
        waits_ms: how long each of them waits.
    """

    def __init__(self, nodes: Cluster, clock: Clock, waits_ms: int = WAITS_MS) -> None:
        self._nodes = nodes
        self._clock = clock
        self._waits_ms = waits_ms
        self._since_ms: dict[str, tuple[str, int]] = {}  # id -> image, and when it began to wait
        self._waiting: Counter[str] = Counter()  # by image

    def waits(
        self, start: str, spec: SandboxSpec, layers: Mapping[str, int], avoid: Collection[str], by_ms: int
    ) -> bool:
        """Whether a start that has a slot is to give it back, and to ask again. Cost: as ``holding``, if it avoids any.

        Args:
            start: the sandbox.
            spec: with the image as nodes pull it.
            layers: of that image, with their bytes; empty: not known.
            avoid: the nodes that the start would avoid now.
            by_ms: when it has to begin at the latest (Unix ms).
        """
        now_ms = self._clock.now_ms()
        _, since_ms = self._since_ms.get(start, ("", now_ms))
        if not avoid or now_ms >= min(since_ms + self._waits_ms, by_ms - self._waits_ms):
            return False
        holding = self._nodes.holding(spec, layers)
        if not holding or not {*holding} <= {*avoid}:
            return False
        if start in self._since_ms:
            return True
        if self._waiting[spec.image] >= len(holding) * self._nodes.starts_per_node:
            return False
        self._since_ms[start] = (spec.image, now_ms)
        self._waiting[spec.image] += 1
        return True

    def over(self, start: str) -> None:
        """Takes in that a start waits no more: it has been sent to the cluster, or has ended."""
        image, _ = self._since_ms.pop(start, ("", 0))
        if image:
            self._waiting[image] -= 1
            if not self._waiting[image]:
                del self._waiting[image]
