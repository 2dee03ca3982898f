"""Since when clients could reach sandboxes: only this time counts towards idle timeouts and leases.

A missing report does not prove that a sandbox is idle or that its client is gone. A sandbox ends because it is unused,
or because its lease is not renewed, only when
1. its own sidecar, through which every call of every gateway passes, reports at that moment that nothing has been under
   way for so long (``quiet_ms``); a sidecar that does not answer, or does not know, ends nothing; and
2. for all that time, and as much more as a gateway may be silent now, calls could have come through: this control plane
   ran, its store answered, and every gateway known to it kept reporting. ``STEADY_MS`` more where no report has been
   later than that, else ``MISSING_MS`` more.
Reports of use only save calls to the sidecar: a lost report, gateway, store or control plane can postpone an end, and
never cause one.
"""

from typing import Final

from controlplane.clock import Clock

# An interval of a gateway's reports, and what one may be late.
STEADY_MS: Final = 8_000
# Three intervals of a gateway's reports.
MISSING_MS: Final = 15_000
# A bound, since anything that reaches the route feed's port can report; an installation has fewer gateways.
MOST_GATEWAYS: Final = 1024


class GatewayReports:
    """Tracks which gateways report, and since when no known gateway has been silent for longer than each limit."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen_ms: dict[str, int] = {}
        self._since_ms = dict.fromkeys((STEADY_MS, MISSING_MS), 0)

    def report(self, gateway_id: str) -> None:
        """Notes that a gateway has reported."""
        now_ms = self._drop_missing()
        if not self._seen_ms:
            self.restart_quiet_time()
        if gateway_id in self._seen_ms or len(self._seen_ms) < MOST_GATEWAYS:
            self._seen_ms[gateway_id] = now_ms

    def restart_quiet_time(self) -> None:
        """Restarts the time that counts: something that callers need was unavailable until now."""
        self._since_ms = dict.fromkeys(self._since_ms, self._drop_missing())

    def judges_from(self, since_ms: int, for_ms: int) -> int | None:
        """From when on (Unix ms) something last seen at ``since_ms`` may count as absent for ``for_ms``.

        None: not before a gateway reports.
        """
        self._drop_missing()
        if not self._seen_ms:
            return None
        return min(max(since_ms, steady_ms) + for_ms + limit_ms for limit_ms, steady_ms in self._since_ms.items())

    def _drop_missing(self) -> int:
        now_ms = self._clock.now_ms()
        silent_ms = now_ms - min(self._seen_ms.values(), default=now_ms)
        # The clients of a missing one may not have found another gateway yet.
        self._since_ms |= {limit_ms: now_ms for limit_ms in self._since_ms if silent_ms > limit_ms}
        if silent_ms > MISSING_MS:
            self._seen_ms = {one: seen_ms for one, seen_ms in self._seen_ms.items() if now_ms - seen_ms <= MISSING_MS}
        return now_ms
