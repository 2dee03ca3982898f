"""Which sandboxes that answer nobody are lost: a rule over what two places have seen. Pure.

A sandbox may be alive for its node while nothing in it answers any more: its kernel hangs. It is lost when
1. the control plane's own questions and those through a gateway have gone unanswered for ``LOST_MS`` each, without an
   answer between them, at least ``QUESTIONS`` of them: two places that do not reach one sandbox is not a lost packet;
2. its node is Ready: what becomes of a node that is not is the cluster's to say, and is told as ``node_lost``;
3. its neighbours on the node answer: at most a quarter of them, or it alone, are silent. A partition, a plugin that is
   being renewed and a node that is busy silence many, and end nobody;
4. or, where it has no neighbour, it has been silent for ``LONE_MS``: nothing else tells its node's network from
   itself. So long Kubernetes leaves a node that is not ready in place, too.

Whatever is missing (a node that is not known, a gateway that cannot be asked) ends nobody.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

LOST_MS: Final = 60_000
LONE_MS: Final = 300_000
QUESTIONS: Final = 3
# Between two questions: after a longer pause it is not known whether it answered in between.
GAP_MS: Final = 180_000
# One in so many of a node's sandboxes may be silent at the same time.
FEW_OF: Final = 4


@dataclass(frozen=True, slots=True)
class Silence:
    """Questions of one place that were not answered, one after the other (Unix ms)."""

    first_ms: int
    last_ms: int
    questions: int = 1

    def lasts(self, for_ms: int) -> bool:
        """Whether it is that long, from the first question to the last."""
        return self.questions >= QUESTIONS and self.last_ms - self.first_ms >= for_ms


def unanswered(before: Silence | None, asked_ms: int) -> Silence:
    """The silence after one more question without an answer."""
    if before is None or asked_ms - before.last_ms > GAP_MS:
        return Silence(asked_ms, asked_ms)
    return replace(before, last_ms=asked_ms, questions=before.questions + 1)


@dataclass(frozen=True, slots=True)
class Seen:
    """One sandbox as two places see it; a place that had an answer last, or none that counts, has no silence.

    Attributes:
        node: where it runs; None: not known.
        node_ready: whether the cluster says that its node is.
        here: the control plane's questions.
        there: those through a gateway.
    """

    sandbox_id: str
    node: str | None
    node_ready: bool
    here: Silence | None = None
    there: Silence | None = None


@dataclass(frozen=True, slots=True)
class Lost:
    """A sandbox that is lost, and how many of its node's other sandboxes answer."""

    seen: Seen
    neighbours: int
    answering: int


def suspects(everything: Sequence[Seen]) -> list[Seen]:
    """Those that may be lost by what the control plane alone has seen: the gateways are to be asked about them."""
    total, silent = _per_node(everything)
    return [one for one in everything if _suspect(one, total, silent)]


def lost(everything: Sequence[Seen]) -> list[Lost]:
    """Those that are lost.

    Args:
        everything: all sandboxes that were asked in the last round, those that answered too.
    """
    total, silent = _per_node(everything)
    found = []
    for one in everything:
        if one.here is None or one.there is None or not _suspect(one, total, silent):
            continue
        for_ms = LOST_MS if total[one.node] > 1 else LONE_MS
        if one.here.lasts(for_ms) and one.there.lasts(for_ms):
            found.append(Lost(one, total[one.node] - 1, total[one.node] - silent[one.node]))
    return found


def _suspect(one: Seen, total: Counter[str | None], silent: Counter[str | None]) -> bool:
    if one.here is None or one.node is None or not one.node_ready:
        return False
    return silent[one.node] <= max(1, total[one.node] // FEW_OF)


def _per_node(everything: Iterable[Seen]) -> tuple[Counter[str | None], Counter[str | None]]:
    """How many there are on each node, and how many of them did not answer the last question."""
    counted = [(one.node, one.here is not None) for one in everything]
    return Counter(node for node, _ in counted), Counter(node for node, is_silent in counted if is_silent)
