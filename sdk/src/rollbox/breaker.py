"""A circuit breaker: during an outage of the platform, creates fail in the client, at once and with one message. Pure.

Closed, every create passes. After a number of platform failures in a row it opens: creates are refused for a while.
Then one create passes as a probe (half open); its success closes the breaker, its failure opens it for longer. Only a
create that failed for good counts, after its own retries: an outage that retries outlast does not open it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from rollbox._problem import SandboxError

BreakerState: TypeAlias = Literal["closed", "open", "half_open"]
"""closed: creates pass; open: they are refused; half_open: one probe may pass, others are refused until it ends."""

OF_ONE_SANDBOX = frozenset({"image_pull_failed", "sandbox_evicted"})
"""Platform failures that do not count: the next create may use another image or another node, and succeed."""


@dataclass(frozen=True, slots=True)
class BreakerPolicy:
    """When the circuit breaker opens, and for how long.

    Attributes:
        failures: platform failures in a row, one for each create, that open it; 0 never opens it.
        first_s: seconds until the first probe; it doubles with every probe that fails.
        longest_s: the longest wait for a probe, seconds.
        now: a monotonic clock in seconds; tests pass their own.
    """

    failures: int = 10
    first_s: float = 10.0
    longest_s: float = 120.0
    now: Callable[[], float] = field(default=time.monotonic, repr=False)


class Breaker:
    """The circuit breaker of one client. Not thread-safe, like the client."""

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
        """The last platform failure of a create; None when the platform has answered a create since."""
        return self._last

    def retry_after_s(self) -> float:
        """Seconds until a create may pass; 0 when one may now."""
        return 0.0 if self._probe_at_s is None else max(0.0, self._probe_at_s - self._policy.now())

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Run one create, if it may pass, and record its result.

        Raises:
            SandboxError: the create is refused, with class and code of the last failure and `details["breaker"]` (see
                `is_open`).
        """
        probe = self._enter()
        try:
            yield
        except SandboxError as error:
            self._failed(error, probe=probe)
            raise
        except BaseException:
            # Cancelled, or a bug of the client: it says nothing about the platform.
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
            # Failures of creates that were in flight when it opened do not extend the wait.
            if probe or (self._probe_at_s is None and 0 < self._policy.failures <= self._in_a_row):
                self._open()
        elif error.request_id:
            # Only the platform sets a request id, so it is up, whatever the error says.
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
    """Whether the error is the circuit breaker's refusal of a create, which was never sent."""
    return isinstance(error, SandboxError) and error.details.get("breaker") == "open"
