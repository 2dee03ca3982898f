"""Ends sandboxes whose callers went away before they were given them, unless a caller asks again with the key."""

from typing import Final

import structlog

from controlplane.clock import Clock
from controlplane.errors import Problem
from controlplane.lifecycle.callers import ABANDONED_MS
from controlplane.lifecycle.idle import End
from controlplane.lifecycle.keeper import Keeper
from controlplane.lifecycle.reaper import Reaper
from controlplane.model import Sandbox

BY: Final = "control plane"
# When the store is away, or the record has just changed.
LOOK_AGAIN_MS: Final = 5_000
# Clients of one machine die together.
LOOKS_AT_ONCE: Final = 16


class Abandoned:
    """Looks at each abandoned sandbox when its callers have been away for ``ABANDONED_MS``.

    Args:
        end: ends a sandbox, if nothing was stored about it since it was read: a caller that asks for the key
            meanwhile has it.
    """

    def __init__(self, clock: Clock, store: Keeper, end: End) -> None:
        self._clock = clock
        self._store = store
        self._end = end
        self._looks = Reaper(clock)
        self._log = structlog.get_logger("abandoned")

    def watch(self, sandbox: Sandbox) -> None:
        """Takes in whether it is abandoned; repeating is fine."""
        if sandbox.abandoned_at_ms is None:
            self.forget(sandbox.id)
        else:
            self._looks.watch(sandbox.id, sandbox.abandoned_at_ms + ABANDONED_MS)

    def forget(self, sandbox_id: str) -> None:
        """Somebody wants it, or its end has begun; unknown ids are fine."""
        self._looks.forget(sandbox_id)

    async def run(self) -> None:
        """Runs until cancelled."""
        await self._looks.run(self._look, LOOKS_AT_ONCE)

    async def _look(self, sandbox_id: str) -> None:
        try:
            await self._judge(sandbox_id)
        except Problem as problem:
            self._log.warning("not judged, it is looked at again", sandbox_id=sandbox_id, detail=problem.detail)
            self._looks.watch(sandbox_id, self._clock.now_ms() + LOOK_AGAIN_MS)

    async def _judge(self, sandbox_id: str) -> None:
        sandbox = await self._store.get(sandbox_id)
        if sandbox is None or sandbox.end is not None or sandbox.abandoned_at_ms is None:
            return
        if sandbox.abandoned_at_ms + ABANDONED_MS > self._clock.now_ms():
            self.watch(sandbox)
            return
        words = f"the client that asked for it went away before it was given it, {ABANDONED_MS // 1000} s ago"
        if not await self._end(sandbox, Problem("create_abandoned", words), BY):
            self._looks.watch(sandbox_id, self._clock.now_ms() + LOOK_AGAIN_MS)
