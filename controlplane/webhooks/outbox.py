"""What one endpoint has to be sent, and when: a bounded queue, one request at a time, in order. Pure."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from controlplane.webhooks.answers import Answer
from controlplane.webhooks.letters import Batch, Dead, Letter, WhyDead

MOST_EVENTS: Final = 16_384
MOST_BYTES: Final = 16 << 20
FIRST_PAUSE_MS: Final = 1_000
MOST_PAUSE_MS: Final = 300_000
# Of a message that the endpoint refuses: what stands behind it is not to wait for long.
MOST_REFUSALS: Final = 5
# Where several may go in one request, the first one waits so long for others.
LINGER_MS: Final = 100
# So many that are given up at once are kept one by one; of more it is kept how many they were.
MOST_SINGLE: Final = 100


@dataclass(frozen=True, slots=True)
class _Waiting:
    letter: Letter
    put_ms: int


class Outbox:
    """The queue of one endpoint and how far it is.

    Every event that is put in is taken, dead or waiting. Order is kept: a request is settled before the next one. What
    is too much is dropped at its old end, behind what is being sent.

    Args:
        batch: the most events of one request.
        give_up_ms: what waits for so long is given up, at the next attempt that fails.
        most_events, most_bytes: that wait.
    """

    def __init__(
        self, batch: int, give_up_ms: int, *, most_events: int = MOST_EVENTS, most_bytes: int = MOST_BYTES
    ) -> None:
        self._batch, self._give_up_ms = batch, give_up_ms
        self._most_events, self._most_bytes = most_events, most_bytes
        self._waiting = deque[_Waiting]()
        self._waiting_bytes = 0
        self._sending: tuple[_Waiting, ...] = ()
        self._attempts = self._failures = self._not_before_ms = 0
        self._dead: list[Dead] = []
        self.stopped = False
        """Whether the endpoint has said that it wants nothing any more."""

    def __len__(self) -> int:
        return len(self._sending) + len(self._waiting)

    def age_ms(self, now_ms: int) -> int:
        """How long ago the event happened that waits longest (ms); 0: none waits."""
        first = self._sending or self._waiting
        return max(0, now_ms - first[0].letter.at_ms) if first else 0

    def settled_ms(self, told_ms: int) -> int:
        """Until when everything is settled (Unix ms); ``told_ms``: until when all was put in. Cost: O(waiting)."""
        return min((one.letter.at_ms for one in (*self._sending, *self._waiting)), default=told_ms)

    def put(self, letter: Letter, now_ms: int) -> None:
        """Takes an event in."""
        one = _Waiting(letter, now_ms)
        if self.stopped:
            self._bury("gone", "it has answered 410", (one,))
            return
        self._waiting.append(one)
        self._waiting_bytes += len(letter.body)
        while len(self._waiting) > self._most_events or self._waiting_bytes > self._most_bytes:
            self._bury("overflow", "", (self._first(),))

    def missed(self, events: int, from_ms: int, to_ms: int) -> None:
        """Counts events as too much that were never put in; arguments as of ``Dead``."""
        self._lose(Dead("overflow", "", 0, events, from_ms, to_ms))

    def due_ms(self) -> int | None:
        """When the next request may be sent (Unix ms); None: nothing waits."""
        if self._sending:
            return self._not_before_ms
        if not self._waiting:
            return None
        linger_ms = LINGER_MS if 1 <= len(self._waiting) < self._batch else 0
        return max(self._not_before_ms, self._waiting[0].put_ms + linger_ms)

    def take(self) -> Batch:
        """The next request, which ``settle`` has to follow; where the last one failed, the same again.

        Raises:
            IndexError: nothing waits.
        """
        if not self._sending:
            self._sending = tuple(self._first() for _ in range(min(self._batch, max(1, len(self._waiting)))))
            self._attempts = 0
        self._attempts += 1
        return Batch(tuple(one.letter for one in self._sending), self._batch > 1, self._attempts)

    def settle(self, answer: Answer, now_ms: int, jitter: float) -> int:
        """Takes in what became of the request; how many events were taken.

        Args:
            answer: what the endpoint said.
            now_ms: Unix ms.
            jitter: from 0 to 1, by chance.
        """
        if answer.verdict == "taken":
            taken, self._sending, self._failures = len(self._sending), (), 0
            return taken
        self._failures += 1
        pause_ms = min(MOST_PAUSE_MS, FIRST_PAUSE_MS << min(self._failures - 1, 20))
        self._not_before_ms = now_ms + max(answer.retry_after_ms, round(pause_ms * (0.5 + jitter / 2)))
        if answer.verdict == "gone":
            self.stopped = True
            self._give_up("gone", answer.detail, self._drained())
        elif answer.verdict == "refused" and self._attempts >= MOST_REFUSALS:
            self._give_up("refused", answer.detail, [])
            # It answers: what stands behind is not to blame.
            self._failures = self._not_before_ms = 0
        elif self._sending[-1].put_ms + self._give_up_ms <= now_ms:
            self._give_up("expired", answer.detail, self._expired(now_ms))
        return 0

    def dead_letters(self) -> Sequence[Dead]:
        """What was given up since the last call."""
        dead, self._dead = self._dead, []
        return dead

    def _give_up(self, why: WhyDead, detail: str, behind: Sequence[_Waiting]) -> None:
        tried, self._sending = self._sending, ()
        self._bury(why, detail, (*tried, *behind), tried=len(tried))

    def _bury(self, why: WhyDead, detail: str, given_up: Sequence[_Waiting], tried: int = 0) -> None:
        """Gives up events, of which the first ``tried`` were sent; where they are many, as one."""
        single = why in ("expired", "refused") and len(given_up) <= MOST_SINGLE
        for number, one in enumerate(given_up):
            at_ms, attempts = one.letter.at_ms, self._attempts if number < tried else 0
            if single:
                self._dead.append(Dead(why, detail, attempts, 1, at_ms, at_ms, one.letter))
            else:
                self._lose(Dead(why, detail, 0, 1, at_ms, at_ms))

    def _lose(self, dead: Dead) -> None:
        last = self._dead[-1] if self._dead else None
        if last is not None and last.letter is None and last.why == dead.why:
            dead = self._dead.pop().and_more(dead)
        self._dead.append(dead)

    def _expired(self, now_ms: int) -> list[_Waiting]:
        found = []
        while self._waiting and self._waiting[0].put_ms + self._give_up_ms <= now_ms:
            found.append(self._first())
        return found

    def _drained(self) -> list[_Waiting]:
        return [self._first() for _ in range(len(self._waiting))]

    def _first(self) -> _Waiting:
        one = self._waiting.popleft()
        self._waiting_bytes -= len(one.letter.body)
        return one
