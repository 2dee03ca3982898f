"""Ending sandboxes whose time to live has passed."""

from typing import Final

from controlplane.clock import Clock
from controlplane.errors import Problem
from controlplane.lifecycle.expiry.timers import Timers
from controlplane.lifecycle.record.ledger import Ledger
from controlplane.lifecycle.record.recovering_store import RecoveringStore
from controlplane.model import Sandbox
from controlplane.model.states import Event

# When the store is away at the moment of an expiry.
AGAIN_MS: Final = 5_000
# Ends that are stored side by side.
AT_ONCE: Final = 64


class Ttl:
    """One timer for each live sandbox."""

    def __init__(self, clock: Clock, store: RecoveringStore, ledger: Ledger) -> None:
        self._clock = clock
        self._store = store
        self._ledger = ledger
        self._timers = Timers(clock)

    def watch(self, sandbox: Sandbox) -> None:
        """Sets or moves its timer."""
        self._timers.watch(sandbox.id, sandbox.expires_at_ms)

    def forget(self, sandbox_id: str) -> None:
        """Its end has begun; unknown ids are fine."""
        self._timers.forget(sandbox_id)

    async def run(self) -> None:
        """Runs until cancelled."""
        await self._timers.run(self.expire, AT_ONCE)

    async def expire(self, sandbox_id: str) -> None:
        """Ends a sandbox whose time has passed, unless it was extended elsewhere; never raises a ``Problem``."""
        try:
            await self._expire(sandbox_id)
        except Problem:
            self._again(sandbox_id)

    async def _expire(self, sandbox_id: str) -> None:
        sandbox = await self._store.get(sandbox_id)
        if sandbox is None or sandbox.end is not None:
            return
        if sandbox.expires_at_ms > self._clock.now_ms():
            self.watch(sandbox)
            return
        if self._ledger.contradicts(sandbox):
            self._again(sandbox_id)
            return
        event, passed = Event.RETIRE if sandbox.unclaimed else Event.END, Problem("ttl_expired", "its ttl has passed")
        # One that is claimed or extended at this moment has another time from now on.
        if not await self._ledger.end(sandbox_id, passed, "reaper", event, sandbox, once=True):
            self._again(sandbox_id)

    def _again(self, sandbox_id: str) -> None:
        self._timers.watch(sandbox_id, self._clock.now_ms() + AGAIN_MS)
