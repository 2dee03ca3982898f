"""Ending what nobody uses: after its idle timeout, and never without its sidecar's word (see ``vigil``)."""

from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from controlplane.clock import Clock
from controlplane.errors import Problem
from controlplane.lifecycle.activity import ASKED_AT_ONCE, Activity, began_ms
from controlplane.lifecycle.keeper import Keeper
from controlplane.lifecycle.reaper import Reaper
from controlplane.model import Sandbox, State

# When nobody can say now whether it is idle.
LOOK_AGAIN_MS: Final = 60_000
# So that one whose moment is just about to come is not asked in a loop.
SOONEST_MS: Final = 1_000

# Ends a sandbox if its record is still the one that was judged; whether it did.
End = Callable[[Sandbox, Problem, str], Awaitable[bool]]


class Idle:
    """Looks at each running sandbox when its idle timeout may have passed.

    Args:
        end: ends a sandbox, if nothing was stored about it since it was read.
    """

    def __init__(self, clock: Clock, store: Keeper, activity: Activity, end: End) -> None:
        self._clock = clock
        self._store = store
        self._activity = activity
        self._end = end
        self._looks = Reaper(clock)
        self._timeouts_ms: dict[str, int] = {}
        self._log = structlog.get_logger("idle")

    def watch(self, sandbox: Sandbox) -> None:
        """Begins when it runs; the second time for the same sandbox is nothing."""
        timeout_ms = sandbox.spec.idle_timeout_ms
        if timeout_ms is None or sandbox.state is not State.RUNNING or sandbox.id in self._timeouts_ms:
            return
        self._timeouts_ms[sandbox.id] = timeout_ms
        self._activity.follow(sandbox.id)
        self._looks.watch(sandbox.id, self._clock.now_ms() + timeout_ms)

    def forget(self, sandbox_id: str) -> None:
        """Its end has begun; unknown ids are fine."""
        self._timeouts_ms.pop(sandbox_id, None)
        self._activity.forget(sandbox_id)
        self._looks.forget(sandbox_id)

    async def run(self) -> None:
        """Runs until cancelled."""
        await self._looks.run(self._look, ASKED_AT_ONCE)

    async def _look(self, sandbox_id: str) -> None:
        try:
            again_ms = await self._judged(sandbox_id)
        except Problem:
            again_ms = self._clock.now_ms() + LOOK_AGAIN_MS
        except Exception:
            # One sandbox that cannot be judged must not take the control plane with it.
            self._log.exception("not judged", sandbox_id=sandbox_id)
            again_ms = self._clock.now_ms() + LOOK_AGAIN_MS
        if not again_ms:
            self.forget(sandbox_id)
        elif sandbox_id in self._timeouts_ms:
            self._looks.watch(sandbox_id, max(again_ms, self._clock.now_ms() + SOONEST_MS))

    async def _judged(self, sandbox_id: str) -> int:
        """When to look again; 0: never."""
        timeout_ms, vigil = self._timeouts_ms.get(sandbox_id), self._activity.vigil
        if timeout_ms is None:
            return 0
        judged_ms = vigil.judges_from(self._activity.used_ms(sandbox_id), timeout_ms)
        if judged_ms is None or judged_ms > self._clock.now_ms():
            return judged_ms or self._clock.now_ms() + LOOK_AGAIN_MS
        sandbox = await self._store.get(sandbox_id)
        if sandbox is None or sandbox.state is not State.RUNNING:
            return 0
        return await self._asked(sandbox, timeout_ms)

    async def _asked(self, sandbox: Sandbox, timeout_ms: int) -> int:
        now_ms = self._clock.now_ms()
        quiet_ms = await self._activity.quiet_ms(sandbox, commands=True)
        if quiet_ms is None:
            return now_ms + LOOK_AGAIN_MS
        quiet_ms = min(quiet_ms, now_ms - began_ms(sandbox))
        if quiet_ms < timeout_ms:
            return now_ms + timeout_ms - quiet_ms
        words = (
            f"it was idle for {quiet_ms / 1000:.0f} s, its idle timeout is {timeout_ms / 1000:g} s: "
            "no exec, no attached client, no file call and no connection to a port"
        )
        # What somebody has asked for meanwhile was answered: it is judged anew.
        return 0 if await self._end(sandbox, Problem("idle_expired", words), "reaper") else now_ms + SOONEST_MS
