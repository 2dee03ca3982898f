"""Ends sandboxes whose callers disconnected before they got them, unless another create with the key comes."""

from typing import Final

import structlog

from controlplane.clock import Clock
from controlplane.errors import Problem
from controlplane.lifecycle.expiry.timers import Timers
from controlplane.lifecycle.record.callers import ABANDONED_MS
from controlplane.lifecycle.record.ledger import PLATFORM, Ledger
from controlplane.lifecycle.record.recovering_store import RecoveringStore
from controlplane.model import Sandbox

# Retry interval when the store does not answer, or the record has just changed.
LOOK_AGAIN_MS: Final = 5_000
# Clients on one machine die together, so many sandboxes are abandoned at the same time.
LOOKS_AT_ONCE: Final = 16


class Abandoned:
    """Ends each sandbox that has been abandoned for ``ABANDONED_MS``."""

    def __init__(self, clock: Clock, store: RecoveringStore, ledger: Ledger) -> None:
        self._clock = clock
        self._store = store
        self._ledger = ledger
        self._timers = Timers(clock)
        self._log = structlog.get_logger("abandoned")

    def watch(self, sandbox: Sandbox) -> None:
        """Sets or removes its timer by whether it is abandoned; may be repeated."""
        if sandbox.abandoned_at_ms is None:
            self.forget(sandbox.id)
        else:
            self._timers.watch(sandbox.id, sandbox.abandoned_at_ms + ABANDONED_MS)

    def forget(self, sandbox_id: str) -> None:
        """Removes its timer: a caller wants it, or its end has begun; unknown ids are ignored."""
        self._timers.forget(sandbox_id)

    async def run(self) -> None:
        """Runs until cancelled."""
        await self._timers.run(self._check, LOOKS_AT_ONCE)

    async def _check(self, sandbox_id: str) -> None:
        try:
            await self._judge(sandbox_id)
        except Problem as problem:
            self._log.warning("abandoned sandbox not ended, retrying", sandbox_id=sandbox_id, detail=problem.detail)
            self._timers.watch(sandbox_id, self._clock.now_ms() + LOOK_AGAIN_MS)

    async def _judge(self, sandbox_id: str) -> None:
        sandbox = await self._store.get(sandbox_id)
        if sandbox is None or sandbox.end is not None or sandbox.abandoned_at_ms is None:
            return
        if sandbox.abandoned_at_ms + ABANDONED_MS > self._clock.now_ms():
            self.watch(sandbox)
            return
        words = f"the client that asked for it went away before it was given it, {ABANDONED_MS // 1000} s ago"
        # Only if the record is still the one that was read: a create that has come with its key since gets the sandbox.
        if not await self._ledger.end(
            sandbox.id, Problem("create_abandoned", words), PLATFORM, known=sandbox, once=True
        ):
            self._timers.watch(sandbox_id, self._clock.now_ms() + LOOK_AGAIN_MS)
