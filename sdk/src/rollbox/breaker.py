"""A circuit breaker: when the platform is out, new creates are refused here, at once and with one message. Pure.

Closed, every create passes. A number of failures of the platform in a row opens it: creates are refused for a while.
Then one is let through as a probe (half open), and what comes of it decides. What counts is a create that failed for
good, after its own retries: an outage that creates ride out stops nobody.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from rollbox._problem import SandboxError

BreakerState: TypeAlias = Literal["closed", "open", "half_open"]
"""Whether creates pass, are refused, or wait for what comes of a probe."""

OF_ONE_SANDBOX = frozenset({"image_pull_failed", "sandbox_evicted"})
"""Failures of the platform that say nothing about the next create: another image or another node may be well."""


@dataclass(frozen=True, slots=True)
class BreakerPolicy:
    """When creates are stopped, and for how long.

    Attributes:
        failures: so many creates in a row that the platform failed; 0 never stops any.
        first_s: seconds until the first probe; it doubles with every probe that fails.
        longest_s: the longest wait for a probe, seconds.
        now: seconds on a clock that never goes back; a test passes its own.
    """

    failures: int = 10
    first_s: float = 10.0
    longest_s: float = 120.0
    now: Callable[[], float] = field(default=time.monotonic, repr=False)


class Breaker:
    """The state of one client's creates. Not for several threads, as the client."""

    def __init__(self, policy: BreakerPolicy) -> None:
        self._policy = policy
        self._in_a_row = 0
        self._last: SandboxError | None = None
        self._wait_s = 0.0
        self._probe_at_s: float | None = None
        self._probing = False

    @property
    def state(self) -> BreakerState:
        """Whether the next create passes."""
        if self._probe_at_s is None:
            return "closed"
        return "half_open" if self._probing or self._policy.now() >= self._probe_at_s else "open"

    @property
    def last_failure(self) -> SandboxError | None:
        """What the platform failed with when creates passed last; None when all is well."""
        return self._last

    def retry_after_s(self) -> float:
        """Seconds until a create may pass; 0 when one may now."""
        return 0.0 if self._probe_at_s is None else max(0.0, self._probe_at_s - self._policy.now())

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Let one create pass and judge by its end.

        Raises:
            SandboxError: it is refused: the last failure's class and code, with `details["breaker"]` (see `is_open`).
        """
        probe = self._enter()
        try:
            yield
        except SandboxError as error:
            self._failed(error, probe=probe)
            raise
        except BaseException:
            # Cancelled, or a fault of our own: nothing is known of the platform.
            self._probing = self._probing and not probe
            raise
        self._close()

    def _enter(self) -> bool:
        if self._probe_at_s is None:
            return False
        if self._probing or self._policy.now() < self._probe_at_s:
            raise self._refusal()
        self._probing = True
        return True

    def _failed(self, error: SandboxError, *, probe: bool) -> None:
        self._probing = self._probing and not probe
        if error.fault == "platform" and error.code not in OF_ONE_SANDBOX:
            self._last = error
            self._in_a_row += 1
            # Creates that were under way when it opened tell nothing new.
            if probe or (self._probe_at_s is None and 0 < self._policy.failures <= self._in_a_row):
                self._open()
        elif error.request_id:
            # Whatever it says, somebody who knows said it.
            self._close()

    def _open(self) -> None:
        self._wait_s = min(self._wait_s * 2 or self._policy.first_s, self._policy.longest_s)
        self._probe_at_s = self._policy.now() + self._wait_s

    def _close(self) -> None:
        self._in_a_row, self._wait_s, self._last = 0, 0.0, None
        self._probe_at_s, self._probing = None, False

    def _refusal(self) -> SandboxError:
        last = self._last or SandboxError("the platform failed")
        wait_s = self.retry_after_s()
        next_try = f"the next one is tried in {wait_s:.0f} s" if wait_s else "one is being tried now"
        kind = type(last)
        refusal = kind(
            f"creates are stopped: the platform failed {self._in_a_row} in a row, the last with {last.code} "
            f"({last.detail.rstrip('.')}); {next_try}",
            hint="Run `rollbox doctor`. Wait and create again, or stop the run: no sample is at fault. "
            "`await client.health()` tells when the platform is back.",
            details={"breaker": "open"},
            retry_after_ms=round(wait_s * 1000),
        )
        refusal.code, refusal.fault, refusal.retry = last.code, last.fault, "later"
        refusal.mask_sample = last.mask_sample
        refusal.__cause__ = last
        return refusal


def is_open(error: BaseException) -> bool:
    """Whether this is the refusal of a create that was never sent, because the platform is out."""
    return isinstance(error, SandboxError) and error.details.get("breaker") == "open"
