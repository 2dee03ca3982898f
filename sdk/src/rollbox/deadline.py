"""The deadline of a whole call, with its retries and waits."""

from __future__ import annotations

import asyncio

LEAST_S = 0.1
"""No attempt starts with less time left: it could only fail for lack of time. The control plane has the same minimum
for its own calls.
"""


class Deadline:
    """A deadline on the clock of the running event loop, counted from its construction.

    Args:
        within_s: seconds from now.
    """

    def __init__(self, within_s: float) -> None:
        self.within_s = within_s
        self._at_s = _now() + within_s

    def left_s(self) -> float:
        """Return the seconds left, 0 once it has passed."""
        return max(0.0, self._at_s - _now())

    def allows(self, wait_s: float) -> bool:
        """Whether an attempt may start after a wait of so many seconds."""
        return wait_s + LEAST_S <= self.left_s()


class Stopwatch:
    """Seconds on the clock of the running event loop since its construction."""

    def __init__(self) -> None:
        self._began_s = _now()

    def passed_s(self) -> float:
        """Return the seconds since then."""
        return _now() - self._began_s


def _now() -> float:
    return asyncio.get_running_loop().time()
