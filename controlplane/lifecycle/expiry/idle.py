"""Ends sandboxes after their idle timeout, and only when their sidecars confirm it (see ``gateway_reports``)."""

from typing import Final

import structlog

from controlplane.clock import Clock
from controlplane.errors import Problem
from controlplane.lifecycle.expiry.activity import ASKED_AT_ONCE, Activity, began_ms
from controlplane.lifecycle.expiry.timers import Timers
from controlplane.lifecycle.record.ledger import Ledger
from controlplane.lifecycle.record.recovering_store import RecoveringStore
from controlplane.model import Sandbox, State

# Retry interval when it is not known whether a sandbox is idle.
LOOK_AGAIN_MS: Final = 60_000
# The shortest time between two checks of one sandbox: prevents a busy loop just before its timeout.
SOONEST_MS: Final = 1_000


class Idle:
    """Checks each running sandbox when its idle timeout may have passed, and ends it if it has."""

    def __init__(self, clock: Clock, store: RecoveringStore, ledger: Ledger, activity: Activity) -> None:
        self._clock = clock
        self._store = store
        self._ledger = ledger
        self._activity = activity
        self._timers = Timers(clock)
        self._timeouts_ms: dict[str, int] = {}
        self._log = structlog.get_logger("idle")

    def watch(self, sandbox: Sandbox) -> None:
        """Sets its timer once it runs; repeated calls for the same sandbox change nothing."""
        timeout_ms = sandbox.spec.idle_timeout_ms
        if timeout_ms is None or sandbox.state is not State.RUNNING or sandbox.id in self._timeouts_ms:
            return
        self._timeouts_ms[sandbox.id] = timeout_ms
        self._activity.follow(sandbox.id)
        self._timers.watch(sandbox.id, self._clock.now_ms() + timeout_ms)

    def forget(self, sandbox_id: str) -> None:
        """Removes its timer: its end has begun; unknown ids are ignored."""
        self._timeouts_ms.pop(sandbox_id, None)
        self._activity.forget(sandbox_id)
        self._timers.forget(sandbox_id)

    async def run(self) -> None:
        """Runs until cancelled."""
        await self._timers.run(self._check, ASKED_AT_ONCE)

    async def _check(self, sandbox_id: str) -> None:
        try:
            again_ms = await self._judged(sandbox_id)
        except Problem:
            again_ms = self._clock.now_ms() + LOOK_AGAIN_MS
        except Exception:
            # An unexpected failure for one sandbox must not end the loop, and the control plane with it.
            self._log.exception("idle timeout not checked, retrying", sandbox_id=sandbox_id)
            again_ms = self._clock.now_ms() + LOOK_AGAIN_MS
        if not again_ms:
            self.forget(sandbox_id)
        elif sandbox_id in self._timeouts_ms:
            self._timers.watch(sandbox_id, max(again_ms, self._clock.now_ms() + SOONEST_MS))

    async def _judged(self, sandbox_id: str) -> int:
        """Checks a sandbox, and ends it if it is idle; when to check again (Unix ms), 0: never."""
        timeout_ms, reports = self._timeouts_ms.get(sandbox_id), self._activity.gateway_reports
        if timeout_ms is None:
            return 0
        judged_ms = reports.judges_from(self._activity.used_ms(sandbox_id), timeout_ms)
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
        # Not if a call has changed the record since it was read: then the sandbox is checked again.
        idle = Problem("idle_expired", words)
        ended = await self._ledger.end(sandbox.id, idle, "reaper", known=sandbox, once=True)
        return 0 if ended else now_ms + SOONEST_MS
