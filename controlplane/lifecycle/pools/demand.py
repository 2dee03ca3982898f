"""The size of a pool: from the recent rate of claims and the time that a replacement takes to start. Pure."""

import math
from collections import deque
from dataclasses import dataclass
from typing import Final

from controlplane.model.pool import PoolSpec

# For how long a claim counts; the steps of an RL run come minutes apart.
MEMORY_S: Final = 600
MINUTE_S: Final = 60
# For peaks that are a little higher than before.
HEADROOM: Final = 1.25
# The assumed time of a start before one was measured.
REFILL_MS: Final = 5_000
LEAST_REFILL_MS: Final = 1_000
MOST_REFILL_MS: Final = 120_000
# The weight of the newest start in the moving average.
WEIGHT: Final = 0.3


class Demand:
    """Claims of one pool per second, served or not, of the last ten minutes. Times are Unix ms."""

    def __init__(self) -> None:
        self._seconds: deque[tuple[int, int]] = deque()
        self._refill_ms: float | None = None

    @property
    def refill_ms(self) -> int:
        """How long a start takes (ms): a moving average of measured starts, within bounds."""
        measured = REFILL_MS if self._refill_ms is None else self._refill_ms
        return round(min(max(measured, LEAST_REFILL_MS), MOST_REFILL_MS))

    def started(self, took_ms: int) -> None:
        """Adds a measured start."""
        before = self._refill_ms
        self._refill_ms = took_ms if before is None else (1 - WEIGHT) * before + WEIGHT * took_ms

    def claimed(self, at_ms: int, times: int = 1) -> None:
        """Adds claims of one moment. If the clock has jumped back, they count in the last known second."""
        second = at_ms // 1000
        if self._seconds and second <= self._seconds[-1][0]:
            last, count = self._seconds.pop()
            self._seconds.append((last, count + times))
        else:
            self._seconds.append((second, times))
        self._forget(second)

    def per_minute(self, now_ms: int) -> int:
        """How many claims there were in the last minute."""
        since = now_ms // 1000 - MINUTE_S
        return sum(count for second, count in self._seconds if second > since)

    def most_at_once(self, now_ms: int) -> int:
        """The most claims within the time of one start. Cost: one pass over at most 600 numbers."""
        self._forget(now_ms // 1000)
        window_s = math.ceil(self.refill_ms / 1000)
        within: deque[tuple[int, int]] = deque()
        total = most = 0
        for second, count in self._seconds:
            within.append((second, count))
            total += count
            while within[0][0] <= second - window_s:
                total -= within.popleft()[1]
            most = max(most, total)
        return most

    def _forget(self, second: int) -> None:
        while self._seconds and self._seconds[0][0] <= second - MEMORY_S:
            self._seconds.popleft()
        # The clock has jumped back by more than ``MEMORY_S``.
        while self._seconds and self._seconds[-1][0] > second + MEMORY_S:
            self._seconds.pop()


@dataclass(frozen=True, slots=True)
class Size:
    """How many sandboxes a pool should keep, and why, in a sentence."""

    wanted: int
    why: str


def size(spec: PoolSpec, demand: Demand, now_ms: int) -> Size:
    """How many sandboxes the pool should keep now."""
    if spec.drain:
        return Size(0, "none are wanted: the pool is drained")
    if spec.min_warm == spec.max_warm:
        return Size(spec.min_warm, f"{spec.min_warm} are wanted: minimum and maximum are the same")
    most = demand.most_at_once(now_ms)
    needed = math.ceil(HEADROOM * most)
    wanted = min(max(needed, spec.min_warm), spec.max_warm)
    seconds, minutes = math.ceil(demand.refill_ms / 1000), MEMORY_S // 60
    seen = f"at most {most} were asked for within {seconds} s, the time of a start, in the last {minutes} min"
    if needed > spec.max_warm:
        return Size(wanted, f"the maximum of {wanted} is wanted: {seen}, for which {needed} would be needed")
    if needed <= spec.min_warm:
        return Size(wanted, f"the minimum of {wanted} is wanted: {seen}")
    return Size(wanted, f"{wanted} are wanted: {seen}, and a quarter is added")
