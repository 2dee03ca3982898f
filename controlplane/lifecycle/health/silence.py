"""Which sandboxes that do not answer probes are lost: a rule over probes from two places. Pure.

A node may report a sandbox as running while nothing in it answers, because its kernel hangs. It is lost when
1. the control plane's own probes and those through a gateway have failed for ``LOST_MS`` each, without an answer in
   between, at least ``QUESTIONS`` of each: failures from two places for so long are no lost packet;
2. its node is Ready: the cluster handles a node that is not, and its sandboxes end as ``node_lost``; and
3. its neighbours on the node answer: at most a quarter of them, or it alone, are silent. A network partition, a network
   plugin that restarts and a busy node silence many sandboxes at once, and must end none;
4. or, where it has no neighbour, it has been silent for ``LONE_MS``: then nothing else distinguishes a failure of the
   sandbox from one of its node's network. Kubernetes waits as long before it evicts from a node that is not ready.

Whatever is not known (the sandbox's node, or whether a gateway reaches it) ends nothing.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

LOST_MS: Final = 60_000
LONE_MS: Final = 300_000
QUESTIONS: Final = 3
# The longest gap between two probes of one silence: after a longer one it may have answered in between.
GAP_MS: Final = 180_000
# At most one in this many of a node's sandboxes may be silent at the same time.
FEW_OF: Final = 4


@dataclass(frozen=True, slots=True)
class Silence:
    """Consecutive probes from one place that failed (Unix ms)."""

    first_ms: int
    last_ms: int
    questions: int = 1

    def lasts(self, for_ms: int) -> bool:
        """Whether it has lasted ``for_ms`` from the first probe to the last, with enough probes."""
        return self.questions >= QUESTIONS and self.last_ms - self.first_ms >= for_ms


def unanswered(before: Silence | None, asked_ms: int) -> Silence:
    """The silence after one more failed probe."""
    if before is None or asked_ms - before.last_ms > GAP_MS:
        return Silence(asked_ms, asked_ms)
    return replace(before, last_ms=asked_ms, questions=before.questions + 1)


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """One sandbox as two places see it; a place whose last probe was answered, or did not count, has no silence.

    Attributes:
        node: where it runs; None: not known.
        node_ready: whether the cluster reports its node as Ready.
        here: failed probes by the control plane.
        there: failed probes through a gateway.
    """

    sandbox_id: str
    node: str | None
    node_ready: bool
    here: Silence | None = None
    there: Silence | None = None


@dataclass(frozen=True, slots=True)
class LostSandbox:
    """A sandbox that is lost, how many others its node has, and how many sandboxes there answer."""

    seen: ProbeResult
    neighbours: int
    answering: int


def suspects(everything: Sequence[ProbeResult]) -> list[ProbeResult]:
    """The sandboxes that may be lost by the control plane's own probes; they are to be probed through a gateway."""
    total, silent = _per_node(everything)
    return [one for one in everything if _suspect(one, total, silent)]


def lost(everything: Sequence[ProbeResult]) -> list[LostSandbox]:
    """The sandboxes that are lost.

    Args:
        everything: all sandboxes that were probed in the last round, also those that answered.
    """
    total, silent = _per_node(everything)
    found = []
    for one in everything:
        if one.here is None or one.there is None or not _suspect(one, total, silent):
            continue
        for_ms = LOST_MS if total[one.node] > 1 else LONE_MS
        if one.here.lasts(for_ms) and one.there.lasts(for_ms):
            found.append(LostSandbox(one, total[one.node] - 1, total[one.node] - silent[one.node]))
    return found


def _suspect(one: ProbeResult, total: Counter[str | None], silent: Counter[str | None]) -> bool:
    if one.here is None or one.node is None or not one.node_ready:
        return False
    return silent[one.node] <= max(1, total[one.node] // FEW_OF)


def _per_node(everything: Iterable[ProbeResult]) -> tuple[Counter[str | None], Counter[str | None]]:
    """How many sandboxes each node has, and how many of them did not answer the last probe."""
    counted = [(one.node, one.here is not None) for one in everything]
    return Counter(node for node, _ in counted), Counter(node for node, is_silent in counted if is_silent)
