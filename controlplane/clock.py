"""Wall time as a value that is passed in, so that tests own it.

Waiting goes through asyncio itself: tests run it on a loop with virtual time (``tests/support/clock.py``).
"""

import time
from typing import Protocol


class Clock(Protocol):
    """Tells the time of day."""

    def now_ms(self) -> int:
        """Unix time in milliseconds."""
        ...


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        """Unix time in milliseconds."""
        return time.time_ns() // 1_000_000
