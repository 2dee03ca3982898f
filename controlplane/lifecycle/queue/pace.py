"""How fast a line moves, from its last turns. Pure: the caller brings the time."""

from collections import deque
from typing import Final

# Enough to even out a herd's ends, few enough to follow a line that slows down.
TURNS: Final = 16


class Pace:
    """The moments of the last turns of one owner's line."""

    def __init__(self) -> None:
        self._turns: deque[int] = deque(maxlen=TURNS)

    def turn(self, at_ms: int) -> None:
        """Somebody had his turn."""
        self._turns.append(at_ms)

    def wait_ms(self, position: int, now_ms: int) -> int | None:
        """How long the one at ``position`` (from 1) will wait if it goes on like this; None while nobody knows.

        The time since the last turn counts too: a line that stands still is told longer and longer waits.
        """
        if not self._turns:
            return None
        return max(0, now_ms - self._turns[0]) * position // len(self._turns)
