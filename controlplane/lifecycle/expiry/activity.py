"""Which sandboxes are in use: by the gateways' reports, and by the health call of each sandbox's sidecar."""

from collections.abc import Iterable
from typing import Final

from controlplane.clock import Clock
from controlplane.cluster import Sidecars
from controlplane.errors import Problem
from controlplane.lifecycle.expiry.gateway_reports import GatewayReports
from controlplane.lifecycle.tokens import SigningKey
from controlplane.model import Sandbox

# A health call takes milliseconds; at most so many sidecars are called at once when many sandboxes fall idle together.
ASKED_AT_ONCE: Final = 16


class Activity:
    """When followed sandboxes were last used, by the gateways' reports.

    Attributes:
        gateway_reports: from when on missing reports count as no use; ``GatewayReports`` has the rule.
    """

    def __init__(self, clock: Clock, sidecars: Sidecars, key: SigningKey) -> None:
        self.gateway_reports = GatewayReports(clock)
        self._clock = clock
        self._sidecars = sidecars
        self._key = key
        self._used_ms: dict[str, int] = {}

    def follow(self, sandbox_id: str) -> None:
        """Keeps the reports about this sandbox, until ``forget``."""
        self._used_ms.setdefault(sandbox_id, 0)

    def forget(self, sandbox_id: str) -> None:
        """Ends ``follow``; unknown ids are ignored."""
        self._used_ms.pop(sandbox_id, None)

    def report(self, gateway_id: str, used: Iterable[tuple[str, int]]) -> None:
        """Takes in a gateway's report: ids, and how long ago each was in use (ms). Cost: 0.2 us an id."""
        self.gateway_reports.report(gateway_id)
        now_ms = self._clock.now_ms()
        for sandbox_id, ago_ms in used:
            known_ms = self._used_ms.get(sandbox_id)
            if known_ms is not None:
                self._used_ms[sandbox_id] = max(known_ms, now_ms - max(0, ago_ms))

    def touch(self, sandbox_id: str) -> None:
        """Counts as use at this moment: its owner has extended it."""
        if sandbox_id in self._used_ms:
            self._used_ms[sandbox_id] = self._clock.now_ms()

    def used_ms(self, sandbox_id: str) -> int:
        """When it was last in use (Unix ms), by the reports to this replica; 0: none."""
        return self._used_ms.get(sandbox_id, 0)

    async def quiet_ms(self, sandbox: Sandbox, *, commands: bool) -> int | None:
        """How long (ms) nothing has been under way in it, as its sidecar reports; None: the sidecar does not answer.

        Args:
            sandbox: a running sandbox.
            commands: whether a running command counts as use, even without an attached client.
        """
        try:
            health = await self._sidecars.health(sandbox.address or "", self._key.token(sandbox).text)
        except Problem:
            return None
        return 0 if commands and health.running_execs else health.quiet_ms


def began_ms(sandbox: Sandbox) -> int:
    """Since when its owner can use it (Unix ms)."""
    return max(sandbox.ready_at_ms or sandbox.created_at_ms, sandbox.claimed_at_ms or 0)
