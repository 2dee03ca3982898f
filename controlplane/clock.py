"""The clock, passed in as a value so that tests control it.

Waiting uses asyncio directly: tests run it on an event loop with virtual time (``tests/support/virtual_time.py``).
"""

import time
from collections.abc import Callable
from typing import Final, Protocol

# A step of the wall clock up to this size is followed at once: time services such as NTP correct about as much in one
# step, and it makes no difference to a sandbox's lifetime.
FOLLOWED_MS: Final = 5_000
# A larger step is slewed: the clock catches up by 1/SLEWED of the time that passes, so a sandbox with a ttl of one hour
# ends at most six minutes early or late.
SLEWED: Final = 10


class Clock(Protocol):
    """Tells the time of day."""

    def now_ms(self) -> int:
        """Unix time in milliseconds."""
        ...


class SystemClock:
    """The machine's wall clock, made monotonic: it never goes back, and a large step is slewed instead of followed.

    So a sandbox with a ttl of one hour lives for about an hour, even if the machine's clock is set meanwhile.

    Args:
        wall_ns: the time of day in Unix nanoseconds; may be stepped.
        steady_ns: a monotonic clock in nanoseconds.
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
