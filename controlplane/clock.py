"""Time as a value that is passed in, so that tests own it.

Waiting goes through asyncio itself: tests run it on a loop with virtual time (``tests/support/virtual_time.py``).
"""

import time
from collections.abc import Callable
from typing import Final, Protocol

# What time services correct in steps, as a rule, and what nobody's life depends on.
FOLLOWED_MS: Final = 5_000
# A wall clock that was set further is followed by one part in so many: a life of an hour ends six minutes off at most.
SLEWED: Final = 10


class Clock(Protocol):
    """Tells the time of day."""

    def now_ms(self) -> int:
        """Unix time in milliseconds."""
        ...


class SystemClock:
    """The machine's clock, made steady: it never goes back, and setting the machine's clock does not make it jump.

    A sandbox that has an hour to live has about an hour, whatever is done to the clock meanwhile.

    Args:
        wall_ns: the time of day; may be set.
        steady_ns: time that nobody sets.
    """

    def __init__(
        self, wall_ns: Callable[[], int] = time.time_ns, steady_ns: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self._wall_ns = wall_ns
        self._steady_ns = steady_ns
        self._now_ns = wall_ns()
        self._looked_ns = steady_ns()

    def now_ms(self) -> int:
        """Unix time in milliseconds."""
        looked_ns = self._steady_ns()
        passed_ns, self._looked_ns = looked_ns - self._looked_ns, looked_ns
        ahead_ns = self._wall_ns() - (self._now_ns + passed_ns)
        if abs(ahead_ns) > FOLLOWED_MS * 1_000_000:
            ahead_ns = (passed_ns if ahead_ns > 0 else -passed_ns) // SLEWED
        self._now_ns += max(0, passed_ns + ahead_ns)
        return self._now_ns // 1_000_000
