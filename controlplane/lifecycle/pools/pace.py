"""What holds a pool's starts up: its rate, want of room, and failures in a row. Pure; times are Unix ms, given."""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from controlplane.errors import TABLE, Code

MINUTE_MS: Final = 60_000
# After the first failure; doubled with each one after it.
FIRST_PAUSE_MS: Final = 5_000
LAST_PAUSE_MS: Final = 300_000
# What is the caller's fault stays so until somebody changes the pool or the image.
FIRST_PAUSE_OF_FAULT_MS: Final = 30_000
# Asking for room costs one step of the store, and news of an end come sooner; this is for room that nobody tells of.
FULL_PAUSE_MS: Final = 30_000
# Of one streak; more kinds of failure than these are told as the last one.
KINDS: Final = 8
DETAIL_CHARS: Final = 300


@dataclass(frozen=True, slots=True)
class Failure:
    """Starts that have failed in a row, by code.

    Attributes:
        detail: of the last one.
    """

    code: Code
    detail: str
    count: int


class Pace:
    """How many starts are allowed now."""

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
        """What has failed since the last start that did not."""
        return (*self._failures.values(), *(() if self._full is None else (self._full,)))

    def paused_until_ms(self, now_ms: int) -> int | None:
        """Until when nothing is started, because starts have failed or there is no room; None: not paused."""
        # A clock that jumped back must not make a pause of minutes one of days.
        self._paused_until_ms = min(self._paused_until_ms, now_ms + LAST_PAUSE_MS)
        self._full_until_ms = min(self._full_until_ms, now_ms + FULL_PAUSE_MS)
        until_ms = max(self._paused_until_ms, self._full_until_ms)
        return until_ms if now_ms < until_ms else None

    def allowed(self, now_ms: int, per_minute: int, starting: int) -> int:
        """How many may be started now.

        Args:
            now_ms: now.
            per_minute: the most in any minute.
            starting: how many are under way: one alone tries out what has not been proven, or has failed.
        """
        if self.paused_until_ms(now_ms) is not None:
            return 0
        rate = max(0, per_minute - self.within_a_minute(now_ms))
        return rate if self._proven and not self.failures else min(rate, max(0, 1 - starting))

    def within_a_minute(self, now_ms: int) -> int:
        """How many were started in the last minute."""
        starts = self._starts
        # A start ahead of now was before the clock jumped back: it counts no more.
        if starts and next(reversed(starts.values())) > now_ms:
            self._starts = starts = OrderedDict((one, at_ms) for one, at_ms in starts.items() if at_ms <= now_ms)
        # They come about in order; one that was heard of late counts as long as those before it.
        while starts and now_ms - next(iter(starts.values())) >= MINUTE_MS:
            starts.popitem(last=False)
        return len(starts)

    def started(self, sandbox_id: str, at_ms: int, now_ms: int) -> None:
        """One was started, here or at another replica; hearing it again counts once."""
        if 0 <= now_ms - at_ms < MINUTE_MS:
            self._starts[sandbox_id] = at_ms
        # Nobody counts at a replica that does not plan.
        if self._starts and not 0 <= now_ms - next(iter(self._starts.values())) < MINUTE_MS:
            self.within_a_minute(now_ms)

    def succeeded(self) -> None:
        """One has got ready."""
        self._clear(proven=True)

    def failed(self, code: Code, detail: str, now_ms: int) -> None:
        """One has failed, or could not be started."""
        before = self._failures.get(code)
        if before is None and len(self._failures) >= KINDS:
            self._failures.pop(next(iter(self._failures)))
        self._failures[code] = Failure(code, detail[:DETAIL_CHARS], 1 if before is None else before.count + 1)
        first_ms = FIRST_PAUSE_OF_FAULT_MS if TABLE[code].fault == "caller" else FIRST_PAUSE_MS
        if self.paused_until_ms(now_ms) is None:
            # Starts that were under way together fail together: that is one failure more, not many.
            self._paused_until_ms = now_ms + min(first_ms << min(self._pauses, 16), LAST_PAUSE_MS)
            self._pauses += 1

    def full(self, code: Code, detail: str, now_ms: int) -> None:
        """There was no room for one."""
        self._full = Failure(code, detail[:DETAIL_CHARS], 1 if self._full is None else self._full.count + 1)
        self._full_until_ms = now_ms + FULL_PAUSE_MS

    def room(self) -> None:
        """There may be room now: one is tried."""
        self._full_until_ms = 0

    def admitted(self) -> None:
        """There was room for one."""
        self._full, self._full_until_ms = None, 0

    def renew(self, *, proven: bool) -> None:
        """Somebody has declared the pool anew: what failed before says nothing any more.

        Args:
            proven: the template is the same: it need not be tried out again.
        """
        self._clear(proven=proven and self._proven)

    def _clear(self, *, proven: bool) -> None:
        self._proven, self._pauses, self._paused_until_ms = proven, 0, 0
        self._failures.clear()
        self.admitted()
