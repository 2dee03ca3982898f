"""Since when callers could come through: the time that may be counted against them.

Silence is not idleness, nor is it absence. A sandbox ends for want of use or of its owner only when
1. its own sidecar, through which every call of every gateway passes, says at that moment that nothing was under way
   for so long (``quiet``); no answer, or one of a sidecar that does not know, ends nothing;
2. for all that time, and ``MISSING_MS`` more, callers could have come: this control plane ran, its store answered, and
   every gateway that it knew went on reporting.
Reports of use only spare the question to the sidecar: a lost report, gateway, store or control plane can postpone an
end, and never bring one about.
"""

from typing import Final

from controlplane.clock import Clock

# Three reports of a gateway.
MISSING_MS: Final = 15_000
# Whoever reaches the route feed's port can report; an installation has fewer gateways.
MOST_GATEWAYS: Final = 1024


class Vigil:
    """Watches the gateways that report here."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen_ms: dict[str, int] = {}
        self._since_ms = 0

    def report(self, gateway_id: str) -> None:
        """A gateway has reported."""
        now_ms = self._settled()
        if not self._seen_ms:
            self._since_ms = now_ms
        if gateway_id in self._seen_ms or len(self._seen_ms) < MOST_GATEWAYS:
            self._seen_ms[gateway_id] = now_ms

    def doubt(self) -> None:
        """Something that callers need was away: what has passed until now does not count."""
        self._since_ms = self._settled()

    def judges_from(self, since_ms: int, for_ms: int) -> int | None:
        """When something that nobody has done since ``since_ms`` may be judged as not done for ``for_ms``.

        None: not before a gateway reports.
        """
        self._settled()
        if not self._seen_ms:
            return None
        return max(since_ms, self._since_ms) + for_ms + MISSING_MS

    def _settled(self) -> int:
        now_ms = self._clock.now_ms()
        missing = [one for one, seen_ms in self._seen_ms.items() if now_ms - seen_ms > MISSING_MS]
        for gateway_id in missing:
            # Its callers may not have found another one yet.
            del self._seen_ms[gateway_id]
            self._since_ms = now_ms
        return now_ms
