"""What a node pool's past says: whether its nodes come in time, and what nothing has needed for long. In Unix ms."""

from collections import deque
from dataclasses import dataclass, field
from typing import Final

FIRST_PAUSE_MS: Final = 60_000
LAST_PAUSE_MS: Final = 1_800_000
# Until a node of a pool has come for the first time.
USUAL_ARRIVAL_MS: Final = 120_000


@dataclass(slots=True)
class Pace:
    """The past of one node pool.

    Attributes:
        arrival_ms: how long its last node took from being asked for.
        late: what is expected did not come in time.
        trouble: why it pauses.
    """

    arrival_ms: int = USUAL_ARRIVAL_MS
    late: bool = False
    trouble: str = ""
    _nodes: int | None = None
    _coming: int = 0
    _since_ms: int = 0  # the last time that a node was asked for, or came
    _pause_ms: int = 0
    _paused_until_ms: int = 0
    _spare: deque[tuple[int, int]] = field(default_factory=deque)

    def see(self, nodes: int, coming: int, within_ms: int, now_ms: int) -> None:
        """Takes in how many nodes there are, and how many more were asked for.

        Args:
            nodes: those that are Ready.
            coming: those that are not.
            within_ms: how long a node may take.
            now_ms: the time.
        """
        self._since_ms = min(self._since_ms, now_ms)  # a clock that was set back makes nothing late for hours
        came = self._nodes is not None and nodes > self._nodes and self._coming > 0
        if came:
            self.arrival_ms = max(1, now_ms - self._since_ms)
            self._pause_ms = self._paused_until_ms = 0
            self.trouble = ""
        if came or coming > self._coming or self._nodes is None:
            self._since_ms = now_ms
        self._nodes, self._coming = nodes, coming
        self.late = coming > 0 and now_ms - self._since_ms >= within_ms

    def failed(self, why: str, now_ms: int) -> None:
        """Takes in that it gave no node: it pauses, each time twice as long, until one comes."""
        if self.paused(now_ms):
            return
        self._pause_ms = min(LAST_PAUSE_MS, max(FIRST_PAUSE_MS, 2 * self._pause_ms))
        self._paused_until_ms = now_ms + self._pause_ms
        self.trouble = why

    def paused(self, now_ms: int) -> bool:
        """Whether no node is to be asked for now."""
        # A clock that was set back does not pause it for longer than it was to.
        return self._paused_until_ms - self._pause_ms <= now_ms < self._paused_until_ms

    @property
    def paused_until_ms(self) -> int:
        """When its last pause ends; 0: it had none."""
        return self._paused_until_ms

    def spared(self, spare: int, over_ms: int, now_ms: int) -> int:
        """Takes in how many nodes nothing needs now; of how many that holds for all of the last ``over_ms``."""
        while self._spare and self._spare[-1][0] > now_ms:
            self._spare.pop()
        self._spare.append((now_ms, spare))
        # The newest sample that is old enough stays, as a proof that the window is covered.
        while len(self._spare) > 1 and self._spare[1][0] <= now_ms - over_ms:
            self._spare.popleft()
        covered = self._spare[0][0] <= now_ms - over_ms
        return min(count for _, count in self._spare) if covered else 0

    def needed(self) -> None:
        """Takes in that a node was asked for: what is spare is judged anew from now on."""
        self._spare.clear()
