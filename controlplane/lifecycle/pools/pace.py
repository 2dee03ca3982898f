"""Throttles a pool's starts: by rate, for want of room, and by backoff after failures. Pure; times are Unix ms."""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from controlplane.errors import TABLE, Code

MINUTE_MS: Final = 60_000
# The pause after the first failure; it doubles with each further one.
FIRST_PAUSE_MS: Final = 5_000
LAST_PAUSE_MS: Final = 300_000
# Longer, since a failure that is the caller's fault repeats until the pool or the image is changed.
FIRST_PAUSE_OF_FAULT_MS: Final = 30_000
# An end lifts this pause at once; it is for room that becomes free without a change of a record here. A try costs the
# store one step.
FULL_PAUSE_MS: Final = 30_000
# The most failure codes that are kept; of more, the oldest is dropped.
KINDS: Final = 8
DETAIL_CHARS: Final = 300


@dataclass(frozen=True, slots=True)
class Failure:
    """Consecutive failed starts with one code.

    Attributes:
        detail: of the last of them.
    """

    code: Code
    detail: str
    count: int


class Pace:
    """Decides how many starts of one pool are allowed."""

    def __init__(self) -> None:
        self._starts: OrderedDict[str, int] = OrderedDict()
        self._failures: dict[Code, Failure] = {}
        self._pauses = 0
        self._proven = False
        self._paused_until_ms = 0
        self._full: Failure | None = None
        self._full_until_ms = 0

    @property
    def failures(self) -> tuple[Failure, ...]:
        """The failures since the last successful start."""
        return (*self._failures.values(), *(() if self._full is None else (self._full,)))

    def paused_until_ms(self, now_ms: int) -> int | None:
        """Until when nothing is started, because starts have failed or there is no room; None: not paused."""
        # A clock that jumps back by days must not make the pause as long.
        self._paused_until_ms = min(self._paused_until_ms, now_ms + LAST_PAUSE_MS)
        self._full_until_ms = min(self._full_until_ms, now_ms + FULL_PAUSE_MS)
        until_ms = max(self._paused_until_ms, self._full_until_ms)
        return until_ms if now_ms < until_ms else None

    def allowed(self, now_ms: int, per_minute: int, starting: int) -> int:
        """How many may be started now.

        Args:
            now_ms: now.
            per_minute: the most in any minute.
            starting: how many are under way. Before the first success, and after a failure, one at a time is tried.
        """
        if self.paused_until_ms(now_ms) is not None:
            return 0
        rate = max(0, per_minute - self.within_a_minute(now_ms))
        return rate if self._proven and not self.failures else min(rate, max(0, 1 - starting))

    def within_a_minute(self, now_ms: int) -> int:
        """How many were started in the last minute."""
        starts = self._starts
        # A start in the future was before the clock jumped back: it does not count.
        if starts and next(reversed(starts.values())) > now_ms:
            self._starts = starts = OrderedDict((one, at_ms) for one, at_ms in starts.items() if at_ms <= now_ms)
        # They are roughly in order; one that was added late counts as long as those before it.
        while starts and now_ms - next(iter(starts.values())) >= MINUTE_MS:
            starts.popitem(last=False)
        return len(starts)

    def started(self, sandbox_id: str, at_ms: int, now_ms: int) -> None:
        """Counts a start, of this replica or another one; repeated calls for one sandbox count once."""
        if 0 <= now_ms - at_ms < MINUTE_MS:
            self._starts[sandbox_id] = at_ms
        # A replica that does not plan does not call ``allowed``, which drops old starts.
        if self._starts and not 0 <= now_ms - next(iter(self._starts.values())) < MINUTE_MS:
            self.within_a_minute(now_ms)

    def succeeded(self) -> None:
        """Resets failures and pauses: a start has succeeded."""
        self._clear(proven=True)

    def failed(self, code: Code, detail: str, now_ms: int) -> None:
        """Counts a start that has failed or was refused, and begins a pause."""
        before = self._failures.get(code)
        if before is None and len(self._failures) >= KINDS:
            self._failures.pop(next(iter(self._failures)))
        self._failures[code] = Failure(code, detail[:DETAIL_CHARS], 1 if before is None else before.count + 1)
        first_ms = FIRST_PAUSE_OF_FAULT_MS if TABLE[code].fault == "caller" else FIRST_PAUSE_MS
        if self.paused_until_ms(now_ms) is None:
            # Starts that were under way at the same time fail together: they lengthen the pause only once.
            self._paused_until_ms = now_ms + min(first_ms << min(self._pauses, 16), LAST_PAUSE_MS)
            self._pauses += 1

    def full(self, code: Code, detail: str, now_ms: int) -> None:
        """Begins a pause: there was no room for a start."""
        self._full = Failure(code, detail[:DETAIL_CHARS], 1 if self._full is None else self._full.count + 1)
        self._full_until_ms = now_ms + FULL_PAUSE_MS

    def room(self) -> None:
        """Ends the pause for want of room: there may be room, so a start is tried."""
        self._full_until_ms = 0

    def admitted(self) -> None:
        """Notes that there was room for a start."""
        self._full, self._full_until_ms = None, 0

    def renew(self, *, proven: bool) -> None:
        """Resets failures and pauses: the pool was declared anew, so earlier failures may not recur.

        Args:
            proven: whether the template is the same, so that a success before still counts.
        """
        self._clear(proven=proven and self._proven)

    def _clear(self, *, proven: bool) -> None:
        self._proven, self._pauses, self._paused_until_ms = proven, 0, 0
        self._failures.clear()
        self.admitted()
