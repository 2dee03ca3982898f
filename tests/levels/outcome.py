"""What a level did, and the table of it that ends a run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tests.levels.steps import Failed
from tests.levels.table import Level

# A level fails that takes thrice its budget: something stands still, or has become far too dear. Less may be the
# machine, which the pace, two moments of it, does not always show; the table says it.
OVER = 3.0


@dataclass
class Outcome:
    """What a level did.

    Attributes:
        seconds: what it took, its set-up included.
        pace: how many times slower than the budgets' machine this one was meanwhile.
        fresh: whether the caches were empty when the run began.
        trouble: why it is not good; "" when it is.
        left_out: why it did not run; "" when it did.
        failed: its tests that failed; when there are any, they are the trouble.
    """

    level: Level
    seconds: float = 0.0
    pace: float = 1.0
    fresh: bool = False
    trouble: str = ""
    left_out: str = ""
    passed: int = 0
    failed: list[Failed] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)

    @property
    def budget_s(self) -> float:
        """What it may cost here and now."""
        return (self.level.fresh_s if self.fresh else self.level.budget_s) * self.pace

    def judge_cost(self) -> None:
        """A level that takes more than thrice its budget is not good."""
        if not self.trouble and self.seconds > self.budget_s * OVER:
            self.trouble = f"took {self.seconds:.0f} s, more than thrice its budget"


def table(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """The lines of the table, and what was skipped."""
    yield f"  {'level':<10} {'seconds':>7} {'budget':>6}  {'passed':>6} {'failed':>6} {'skipped':>7}"
    for outcome in outcomes:
        if outcome.left_out:
            yield f"  {outcome.level.name:<10} left out: {outcome.left_out}"
            continue
        counts = f"{outcome.passed:>6} {len(outcome.failed):>6} {len(outcome.skipped):>7}"
        good = "good, but over its budget" if outcome.seconds > outcome.budget_s else "good"
        verdict = f"FAILED: {outcome.trouble}" if outcome.trouble else good
        yield f"  {outcome.level.name:<10} {outcome.seconds:>7.0f} {outcome.budget_s:>6.0f}  {counts}  {verdict}"
    yield f"  together   {sum(outcome.seconds for outcome in outcomes):>7.0f}"
    skipped = [words for outcome in outcomes for words in outcome.skipped]
    if skipped:
        yield f"\n{len(skipped)} tests were skipped:"
        yield from (f"  {words}" for words in skipped)
