"""Durations in a bounded number of buckets, so that quantiles of millions of calls cost some kilobytes. Pure."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

# Each bucket ends 2 % above where it begins: a quantile is right to 1 %.
_LOG_STEP = math.log(1.02)
# A microsecond and ten days: what is outside counts as these, so there are 1,400 buckets at most.
_LEAST_MS, _MOST_MS = 0.001, 864_000_000.0


@dataclass(frozen=True, slots=True)
class Tail:
    """The distribution of one kind of duration, in ms.

    Attributes:
        count: how many there were.
        mean_ms, p50_ms, p90_ms, p99_ms, max_ms: mean and maximum are exact, the quantiles right to 1 %.
        steps: the whole distribution: pairs of a duration and the share of durations up to it.
    """

    count: int
    mean_ms: float
    p50_ms: float
    p90_ms: float
    p99_ms: float
    max_ms: float
    steps: tuple[tuple[float, float], ...] = ()


class Durations:
    """Counts durations by buckets."""

    __slots__ = ("_buckets", "count", "max_ms", "sum_ms")

    def __init__(self) -> None:
        self._buckets: Counter[int] = Counter()
        self.count = 0
        self.sum_ms = 0.0
        self.max_ms = 0.0

    def add(self, took_ms: float) -> None:
        """Count one duration; one below zero (a clock that was set back) counts as none."""
        took_ms = max(0.0, took_ms)
        self.count += 1
        self.sum_ms += took_ms
        self.max_ms = max(self.max_ms, took_ms)
        self._buckets[math.floor(math.log(min(max(took_ms, _LEAST_MS), _MOST_MS)) / _LOG_STEP)] += 1

    def tail(self) -> Tail:
        """Summarize what was counted; zeros when there is nothing."""
        steps, seen = [], 0
        for bucket, count in sorted(self._buckets.items()):
            seen += count
            steps.append((round(min(math.exp((bucket + 0.5) * _LOG_STEP), self.max_ms), 3), seen / self.count))
        p50, p90, p99 = (next((ms for ms, share in steps if share >= wanted), 0.0) for wanted in (0.5, 0.9, 0.99))
        mean_ms = self.sum_ms / self.count if self.count else 0.0
        return Tail(self.count, round(mean_ms, 3), p50, p90, p99, round(self.max_ms, 3), tuple(steps))
