"""The moment by which a call has to be over, with all that it repeats and waits for."""

from __future__ import annotations

import asyncio

LEAST_S = 0.1
"""Nothing is begun with less time than this: it would only tell that there was none. A server takes no less either."""


class Deadline:
    """Counts from where it is made, on the clock of the running event loop.

    Args:
        within_s: seconds from now.
    """

    def __init__(self, within_s: float) -> None:
        self.within_s = within_s
        self._at_s = _now() + within_s

    def left_s(self) -> float:
        """Return the seconds that are left, 0 once it has passed."""
        return max(0.0, self._at_s - _now())

    def allows(self, wait_s: float) -> bool:
        """Whether there is time for something after a wait of so many seconds."""
        return wait_s + LEAST_S <= self.left_s()


def _now() -> float:
    return asyncio.get_running_loop().time()
