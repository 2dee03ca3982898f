"""What is in use: as the gateways report it, and as the sandbox's own sidecar says when it is asked."""

from collections.abc import Iterable
from typing import Final

from controlplane.clock import Clock
from controlplane.cluster import Sidecars
from controlplane.errors import Problem
from controlplane.lifecycle.tokens import SigningKey
from controlplane.lifecycle.vigil import Vigil
from controlplane.model import Sandbox

# Health answers in milliseconds; of a herd that falls idle together so many are asked at once.
ASKED_AT_ONCE: Final = 16


class Activity:
    """Reports of use, by sandbox, of those that somebody follows.

    Attributes:
        vigil: since when silence may mean something; see there for the rule.
    """

    def __init__(self, clock: Clock, sidecars: Sidecars, key: SigningKey) -> None:
        self.vigil = Vigil(clock)
        self._clock = clock
        self._sidecars = sidecars
        self._key = key
        self._used_ms: dict[str, int] = {}

    def follow(self, sandbox_id: str) -> None:
        """Keeps what is reported of this one, until ``forget``."""
        self._used_ms.setdefault(sandbox_id, 0)

    def forget(self, sandbox_id: str) -> None:
        """Ends ``follow``; unknown ids are fine."""
        self._used_ms.pop(sandbox_id, None)

    def report(self, gateway_id: str, used: Iterable[tuple[str, int]]) -> None:
        """Takes a gateway's report: ids, and how long ago each was in use (ms). Cost: 0.2 us an id."""
        self.vigil.report(gateway_id)
        now_ms = self._clock.now_ms()
        for sandbox_id, ago_ms in used:
            known_ms = self._used_ms.get(sandbox_id)
            if known_ms is not None:
                self._used_ms[sandbox_id] = max(known_ms, now_ms - max(0, ago_ms))

    def touch(self, sandbox_id: str) -> None:
        """Its owner has asked for it to go on."""
        if sandbox_id in self._used_ms:
            self._used_ms[sandbox_id] = self._clock.now_ms()

    def used_ms(self, sandbox_id: str) -> int:
        """When it was in use last (Unix ms), as far as was reported here; 0: nobody said."""
        return self._used_ms.get(sandbox_id, 0)

    async def quiet_ms(self, sandbox: Sandbox, *, commands: bool) -> int | None:
        """For how long nothing was under way in it, by its sidecar's own word; None: it gives none.

        Args:
            sandbox: whose; it runs.
            commands: whether a command that runs counts, though nobody is attached to it.
        """
        try:
            health = await self._sidecars.health(sandbox.address or "", self._key.token(sandbox).text)
        except Problem:
            return None
        return 0 if commands and health.running_execs else health.quiet_ms


def began_ms(sandbox: Sandbox) -> int:
    """Since when it is its owner's to use (Unix ms)."""
    return max(sandbox.ready_at_ms or sandbox.created_at_ms, sandbox.claimed_at_ms or 0)
