"""The distribution of what the calls of a scenario took. Exact, unlike that of a run's report; pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rollbox._problem import SandboxError
from rollbox.bench.arrivals import Met
from rollbox.recording.tails import Tail

QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999}
"""The quantiles of reports, by name."""

# A curve with more points looks the same.
_MOST_POINTS = 400


class Unfinished:
    """The answer of a call that had none when the time of its scenario was over."""


@dataclass(frozen=True, slots=True)
class Wrong:
    """The answer of a call that did something else than it should have.

    Attributes:
        code: what it did, as failures are counted.
    """

    code: str


def percentile(values: Sequence[float], share: float) -> float:
    """Return the nearest-rank percentile; `share` in 0..1.

    Raises:
        ValueError: there are no values.
    """
    if not values:
        raise ValueError("a percentile of nothing")
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


@dataclass(frozen=True, slots=True)
class Sample:
    """What the calls of one kind took.

    Attributes:
        took_ms: of the calls that succeeded, ascending.
        unfinished: calls without an answer when the time was over: they count as longer than all others.
        failed: calls that failed, by code and fault; they are in no quantile.
        late_ms: the longest that this process itself came late to begin a call.
        answers: how many answers were of each kind, such as warm and cold.
    """

    took_ms: tuple[float, ...]
    unfinished: int = 0
    failed: dict[tuple[str, str], int] = field(default_factory=dict)
    late_ms: float = 0.0
    answers: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, met: Iterable[Met], kinds: Iterable[str] = ()) -> Sample:
        """Sort out what calls met.

        Args:
            met: of all calls.
            kinds: of the answers, to be counted.
        """
        took, unfinished, late_ms = [], 0, 0.0
        failed: Counter[tuple[str, str]] = Counter()
        for one in met:
            late_ms = max(late_ms, one.late_ms)
            if isinstance(one.answer, SandboxError):
                failed[one.answer.code, one.answer.fault] += 1
            elif isinstance(one.answer, Wrong):
                failed[one.answer.code, "workload"] += 1
            elif isinstance(one.answer, Unfinished):
                unfinished += 1
            else:
                took.append(one.ms)
        return cls(tuple(sorted(took)), unfinished, dict(failed.most_common()), late_ms, dict(Counter(kinds)))

    @property
    def count(self) -> int:
        """How many calls the quantiles are of."""
        return len(self.took_ms) + self.unfinished

    @property
    def max_ms(self) -> float:
        """The longest; infinite where one was not finished."""
        return self.quantile(1.0)

    def quantile(self, share: float) -> float:
        """Return a quantile, ms, by the nearest rank; infinite where it is of an unfinished call, NaN of none."""
        rank = max(0, math.ceil(share * self.count - 1e-9) - 1)
        if not self.count:
            return math.nan
        return self.took_ms[rank] if rank < len(self.took_ms) else math.inf

    def resolves(self, share: float) -> bool:
        """Whether there are calls enough for this quantile to be one, and not just the longest call."""
        return self.count * (1 - share) >= 1 - 1e-9

    def tail(self) -> Tail:
        """Return it as plots take distributions; unfinished calls leave the curve below 100 %."""
        if not self.took_ms:
            return Tail(0, 0.0, 0.0, 0.0, 0.0, 0.0)
        every = math.ceil(len(self.took_ms) / _MOST_POINTS)
        ranks = [*range(every - 1, len(self.took_ms) - 1, every), len(self.took_ms) - 1]
        steps = tuple((max(self.took_ms[rank], 0.001), (rank + 1) / self.count) for rank in ranks)
        mean_ms = sum(self.took_ms) / len(self.took_ms)
        p50, p90, p99 = (self.quantile(share) for share in (0.5, 0.9, 0.99))
        return Tail(self.count, mean_ms, p50, p90, p99, self.took_ms[-1], steps)

    def to_json(self) -> dict[str, Any]:
        """Write it as JSON: a quantile that is not resolved, or of an unfinished call, is null."""
        quantiles = {name: self.quantile(share) if self.resolves(share) else None for name, share in QUANTILES.items()}
        quantiles["max"] = self.max_ms if self.count else None
        return {
            "count": self.count,
            "unfinished": self.unfinished,
            "failed": [{"code": code, "fault": fault, "count": n} for (code, fault), n in self.failed.items()],
            "answers": self.answers,
            "quantiles_ms": {name: _finite(ms) for name, ms in quantiles.items()},
            "client_late_ms": round(self.late_ms, 3),
            "took_ms": [round(ms, 3) for ms in self.took_ms],
        }


def _finite(value: float | None) -> float | None:
    return round(value, 3) if value is not None and math.isfinite(value) else None
