"""``ScalerReport``: what the scaler has decided last, as the replica whose turn it is leaves it for the others."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Final, Self

from controlplane.capacity import Amounts
from controlplane.capacity.amounts import fits
from controlplane.scaling import NodePool, Prospect
from controlplane.scaling.decisions import Decision, told
from controlplane.scaling.planner import Unplaced

MOST_STEPS: Final = 50
MOST_UNPLACED: Final = 20


@dataclass(frozen=True, slots=True)
class PoolLine:
    """One node pool.

    Attributes:
        provider: its kind.
        least, most: how many nodes it may have.
        ready: nodes that take starts.
        coming: nodes that were asked for and are not Ready.
        leaving: nodes that are being emptied.
        wanted: how many it is to have.
        why: a sentence; empty: nothing is to be said.
        paused_until_ms: until when no node of it is asked for; 0: it does not pause.
    """

    name: str
    provider: str
    least: int
    most: int
    ready: int
    coming: int
    leaving: int
    wanted: int
    why: str
    paused_until_ms: int

    def may_come(self, now_ms: int) -> tuple[int, str]:
        """How many nodes are coming or may be asked for, and why none is asked for at a time (Unix ms)."""
        seconds = -(-(self.paused_until_ms - now_ms) // 1000)
        more = self.most - self.wanted - self.leaving
        return self.coming + max(0, more), f"it pauses for another {seconds} s" if seconds > 0 else ""


@dataclass(frozen=True, slots=True)
class UnplacedLine:
    """So many of one size that no node, there or to come, has room for; ``need`` as in ``planner.Need``."""

    count: int
    need: str
    cpu_millicores: int
    memory_bytes: int
    gpu: int
    why: str


@dataclass(frozen=True, slots=True)
class ScalerReport:
    """What the scaler has decided.

    Attributes:
        at_ms: when.
        dry_run: nothing of it is done.
        steps: what is done, in words.
        unplaced: of these the first ``MOST_UNPLACED``.
        unplaced_in_all: sandboxes that wait and have no place anywhere.
    """

    at_ms: int
    dry_run: bool
    pools: Sequence[PoolLine] = ()
    steps: Sequence[str] = ()
    unplaced: Sequence[UnplacedLine] = ()
    unplaced_in_all: int = 0

    @classmethod
    def of(cls, decision: Decision, at_ms: int, *, dry_run: bool) -> Self:
        """From a decision."""
        lines = [
            PoolLine(
                name=one.pool.name,
                provider=one.pool.provider,
                least=one.pool.least,
                most=one.pool.most,
                ready=one.ready,
                coming=one.coming,
                leaving=one.leaving,
                wanted=one.wanted,
                why=one.why,
                paused_until_ms=one.paused_until_ms,
            )
            for one in decision.reports
        ]
        unplaced = decision.plan.unplaced
        return cls(
            at_ms,
            dry_run,
            lines,
            [f"{step.pool}: {told(step)}" for step in decision.steps[:MOST_STEPS]],
            [_line(one) for one in unplaced[:MOST_UNPLACED]],
            sum(one.count for one in unplaced if one.need == "waiting"),
        )

    def nodes(self) -> Mapping[str, Mapping[str, int]]:
        """Nodes of each pool by what they are, for the metrics."""
        return {
            one.name: {what: getattr(one, what) for what in ("ready", "coming", "leaving", "wanted", "most")}
            for one in self.pools
        }

    def prospects(
        self, pools: Sequence[NodePool], request: Amounts, selector: Mapping[str, str], now_ms: int
    ) -> Sequence[Prospect]:
        """What may come for one kind of sandbox, of each pool whose nodes take it; of a dry run nothing.

        Args:
            pools: the declared ones.
            request: what one sandbox of the kind requests.
            selector: of its nodes.
            now_ms: the time (Unix ms).
        """
        if self.dry_run:
            return ()
        lines = {one.name: one for one in self.pools}
        found = []
        for pool in pools:
            if pool.takes(selector) and fits(pool.size, request):
                line = lines.get(pool.name)
                nodes, pause = (None, "") if line is None else line.may_come(now_ms)
                found.append(Prospect.of(pool, request, nodes, pause))
        return found

    def text(self) -> str:
        """As it is kept."""
        return json.dumps(asdict(self))


def _line(one: Unplaced) -> UnplacedLine:
    cpu, memory, _, gpu, _ = one.kind.request
    return UnplacedLine(one.count, one.need, cpu, memory, gpu, one.why)


def read_report(text: str) -> ScalerReport | None:
    """What ``text`` has written; None: nothing, or by another version."""
    try:
        fields = json.loads(text)
        pools, unplaced = fields.pop("pools"), fields.pop("unplaced")
        lines, left = [PoolLine(**one) for one in pools], [UnplacedLine(**one) for one in unplaced]
        return ScalerReport(**fields, pools=lines, unplaced=left)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
