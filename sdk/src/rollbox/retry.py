"""Retries with backoff. Requests are safe to repeat: they carry an idempotency key or exec_id, or are idempotent."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from typing import TypeVar

from rollbox._problem import SandboxError
from rollbox.deadline import Deadline, Stopwatch

_T = TypeVar("_T")
_log = logging.getLogger("rollbox")

REPEATABLE = frozenset(
    {"stream_interrupted", "draining", "upstream_timeout", "capacity_unavailable", "rate_limited", "settings_pending"}
)
"""Retryable codes: the same request may succeed later. Errors with other codes are raised at once."""

PASSING = frozenset({"stream_interrupted", "draining", "upstream_timeout"})
"""The retryable codes of a platform that is restarting."""

_ROOM_S = 1.0
"""After a refusal for lack of room, no retry starts with less time left than this: it would fail as a start timeout or
as a slow API server, and the answer that names the cause would be lost."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and how long a request is retried.

    The backoff grows threefold from `first_s` to `longest_s`, with jitter: between three quarters and all of it. A
    `retry_after_ms` from the server is honoured. The default outlasts a part of the platform that is replaced within
    15 seconds: on a busy machine of two cores, two control planes that were killed at once were back after 9 to 10.

    Attributes:
        tries: how often the request is sent at most.
        first_s: the longest first wait, seconds.
        longest_s: the longest wait that the server did not ask for, seconds.
        budget_s: the sum of all waits at most, seconds; a longer wait is not begun, the error is raised instead. A
            repetition that nobody has answered is a wait too.
        sleep: how to wait; tests pass their own.
    """

    tries: int = 11
    first_s: float = 0.1
    longest_s: float = 3.0
    budget_s: float = 25.0
    sleep: Callable[[float], Awaitable[None]] = field(default=asyncio.sleep, repr=False)

    def wait_s(self, failures: int, error: SandboxError, waited_s: float, passing_for_s: float = 0.0) -> float | None:
        """Return the seconds to wait before the next attempt; None when the error is to be raised.

        Args:
            failures: how many attempts failed, 1 or more.
            error: the last failure.
            waited_s: seconds waited so far.
            passing_for_s: the sum of all waits, instead of `tries` and `budget_s`, while a gateway answers with one of
                the codes `PASSING`. Without effect when `tries` is 1.
        """
        # `waited_ms`: it has waited in the server's queue until the caller's deadline, and would wait as long again.
        if error.code not in REPEATABLE or self.tries == 1 or "waited_ms" in error.details:
            return None
        longest_s = min(self.first_s * 3.0 ** min(failures - 1, 20), self.longest_s)
        wait = max(longest_s * random.uniform(0.75, 1.0), (error.retry_after_ms or 0) / 1000)  # noqa: S311
        # Only a gateway sets a request id: an address where no gateway answers gets no long wait.
        if error.code in PASSING and error.request_id and waited_s + wait <= passing_for_s:
            return wait
        return wait if failures < self.tries and waited_s + wait <= self.budget_s else None


class Failures:
    """The failures of the attempts of one call: each shows in its traceback the attempts before that failed otherwise.

    An outage fails all attempts alike: of those in a row with one code and detail only the last is kept.
    """

    def __init__(self) -> None:
        self._last: SandboxError | None = None
        self._before: SandboxError | None = None

    def add(self, error: SandboxError) -> None:
        """Record a failure, and make the one before the cause at the end of its own chain of causes."""
        last, self._last = self._last, error
        if last is not None and (last.code, last.detail) != (error.code, error.detail):
            self._before = last
        if self._before is not None and error not in _causes(self._before):
            [*_causes(error)][-1].__cause__ = self._before


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Iterate over an error and what its traceback shows before it, from the last to the first."""
    shown: BaseException | None = error
    while shown is not None:
        yield shown
        shown = shown.__cause__ if shown.__suppress_context__ else shown.__context__


async def repeat(
    policy: RetryPolicy,
    send: Callable[[], Awaitable[_T]],
    *,
    deadline: Deadline | None = None,
    until_deadline: bool = False,
    final: Collection[str] = (),
) -> _T:
    """Call `send`, with retries, until it returns or its error is to be raised.

    Args:
        policy: how often and how long to retry.
        send: one attempt.
        deadline: of the whole call: no attempt starts without time left for it, the last error is raised instead.
        until_deadline: while a gateway answers with a code of `PASSING`, only the deadline limits the retries.
        final: codes after which this call cannot be repeated.

    Raises:
        SandboxError: the last failure; its causes are the failures before it (see `Failures`).
    """
    failures = 0
    failed = Failures()
    waited_s = 0.0
    while True:
        attempt = Stopwatch()
        try:
            return await send()
        except SandboxError as error:
            if failures and error.code == "upstream_timeout" and not error.request_id:
                # Not the first such attempt: another gateway may answer where one stands still.
                waited_s += attempt.passed_s()
            failures += 1
            failed.add(error)
            passing_for_s = waited_s + deadline.left_s() if until_deadline and deadline is not None else 0.0
            wait = policy.wait_s(failures, error, waited_s, passing_for_s)
            least_s = 0.0 if error.code in PASSING else _ROOM_S
            out_of_time = deadline is not None and wait is not None and not deadline.allows(wait + least_s)
            if wait is None or out_of_time or error.code in final:
                raise
            _log.debug("attempt %d failed with %s, retrying in %.3f s: %s", failures, error.code, wait, error.detail)
        waited_s += wait
        await policy.sleep(wait)


class Resumption:
    """The backoff between attempts to resume a broken stream; received data resets it."""

    def __init__(self, policy: RetryPolicy, budget_s: float) -> None:
        self._policy = replace(policy, tries=10**6, budget_s=budget_s)
        self._failures = 0
        self._failed = Failures()
        self._waited_s = 0.0
        self._since = 0.0

    def progress(self) -> None:
        """Reset the backoff: data was received."""
        if self._failures:
            self._failures, self._failed = 0, Failures()

    async def after(self, error: SandboxError) -> None:
        """Wait after a failure; raises the error when it is final or the budget is spent.

        After the first failure there is no wait, since another gateway may answer at once.
        """
        self._failed.add(error)
        if error.code not in REPEATABLE:
            raise error
        now = asyncio.get_running_loop().time()
        self._failures += 1
        if self._failures == 1:
            self._since, self._waited_s = now, 0.0
            return
        wait = self._policy.wait_s(self._failures - 1, error, max(self._waited_s, now - self._since))
        if wait is None:
            self._failures, self._failed = 0, Failures()
            raise error
        self._waited_s += wait
        await self._policy.sleep(wait)
