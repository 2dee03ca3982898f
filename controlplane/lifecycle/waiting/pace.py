"""Estimates waits from how fast a queue has moved lately. Pure: the caller passes the time."""

from collections import deque
from typing import Final

# What nobody tells of (messages that were lost, new nodes, slots of replicas that died) is seen by looking again.
LOOK_AGAIN_S: Final = 1.0
# Enough to even out bursts of ends, few enough to follow a queue that slows down.
TURNS: Final = 16


class Pace:
    """When the last turns of one owner's queue were (Unix ms)."""

    def __init__(self) -> None:
        self._turns: deque[int] = deque(maxlen=TURNS)

    def turn(self, at_ms: int) -> None:
        """Notes that a create of this owner had its turn."""
        self._turns.append(at_ms)

    def wait_ms(self, position: int, now_ms: int) -> int | None:
        """The estimated wait (ms) at ``position`` (from 1) if the queue goes on at this pace; None: no turns yet.

        The time since the last turn counts too, so the estimates grow while a queue stands still.
        """
        if not self._turns:
            return None
        return max(0, now_ms - self._turns[0]) * position // len(self._turns)
