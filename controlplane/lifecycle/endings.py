"""How sandboxes end: record and routes first, then off the cluster; every cause goes through here."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from controlplane.errors import Problem
from controlplane.lifecycle.care import Care
from controlplane.lifecycle.keeper import Keeper
from controlplane.lifecycle.ledger import Ledger
from controlplane.lifecycle.notes import Notes
from controlplane.lifecycle.parts import Parts
from controlplane.lifecycle.patience import patiently
from controlplane.lifecycle.reclaim import Reclaimer
from controlplane.lifecycle.states import Event
from controlplane.model import EndCause, Sandbox, State

PLATFORM: Final = "control plane"
# When the store is away at the moment of an expiry.
EXPIRE_AGAIN_MS: Final = 5_000
# How many ends of one call are stored side by side.
TOGETHER: Final = 64


@dataclass(frozen=True, slots=True)
class Deleted:
    """What a delete of many came to: ids whose end is on record, and those whose confirmation did not come in time."""

    ids: Sequence[str]
    failed: Mapping[str, Problem]


class Endings:
    """Ends sandboxes.

    Args:
        starts: the starts under way here, by id; one whose sandbox ends is cancelled.
    """

    def __init__(
        self,
        parts: Parts,
        store: Keeper,
        ledger: Ledger,
        *,
        notes: Notes,
        group: asyncio.TaskGroup,
        starts: Mapping[str, asyncio.Task[None]],
    ) -> None:
        self._clock = parts.clock
        self._backend = parts.cluster.describe().backend
        self._store = store
        self._ledger = ledger
        self._notes = notes
        self._starts = starts
        self.care = Care(parts, store, self._end_judged)
        self.reclaimer = Reclaimer(parts.cluster, ledger, group)
        self._log = structlog.get_logger("endings")

    async def end(
        self,
        sandbox_id: str,
        problem: Problem,
        by: str,
        event: Event = Event.END,
        known: Sandbox | None = None,
        *,
        once: bool = False,
    ) -> bool:
        """Ends a sandbox with this cause, unless its end has begun: the first cause stays. Whether it was this one.

        Quota is free and the gateways know when this returns; the cluster is asked in the background.

        Args:
            sandbox_id: whose end.
            problem: why.
            by: who ends it.
            event: an end, or one that changes nothing to a sandbox that is not as it is meant.
            known: its record, if the caller has just had it: saves a question.
            once: only if the record is still ``known``.
        """
        cause = EndCause(problem.code, problem.detail, self._clock.now_ms(), by)
        sandbox = await self._ledger.end(sandbox_id, cause, event, known, once=once)
        if sandbox is not None:
            self.clear(sandbox)
        return sandbox is not None

    async def end_all(self, sandboxes: Sequence[Sandbox], problem: Problem, by: str, *, wait_s: float = 0.0) -> Deleted:
        """Ends many together; waits for the cluster's confirmation for ``wait_s`` at most, by default not at all."""
        # All ends first: quota and routes of the last one do not wait for the cluster to take the first one off.
        for at in range(0, len(sandboxes), TOGETHER):
            some = (self.end(one.id, problem, by, known=one) for one in sandboxes[at : at + TOGETHER])
            for failure in await asyncio.gather(*some, return_exceptions=True):
                if isinstance(failure, BaseException):
                    raise failure
        if not wait_s:
            return Deleted([sandbox.id for sandbox in sandboxes], {})
        confirmations = await asyncio.gather(
            *(self.confirmed(sandbox, wait_s) for sandbox in sandboxes), return_exceptions=True
        )
        failed: dict[str, Problem] = {}
        for sandbox, confirmation in zip(sandboxes, confirmations, strict=True):
            if isinstance(confirmation, Problem):
                failed[sandbox.id] = confirmation
            elif isinstance(confirmation, BaseException):
                raise confirmation
        return Deleted([sandbox.id for sandbox in sandboxes if sandbox.id not in failed], failed)

    async def confirmed(self, sandbox: Sandbox, within_s: float) -> Sandbox | None:
        """Returns when the cluster has confirmed the end, whoever began it.

        Returns:
            The record from then on, if this replica has just stored it.

        Raises:
            Problem: upstream_timeout, not within ``within_s``; the reclamation goes on, and asking again is safe.
        """
        if self._store.shared and not self.reclaimer.has(sandbox.id):
            now = await self._store.get(sandbox.id)
            if now is not None and now.state is State.ENDING:
                self.reclaimer.begin(sandbox.id)
        return await self.reclaimer.confirmed(sandbox, within_s)

    def clear(self, sandbox: Sandbox, *, heard: bool = False) -> None:
        """Stops what is under way here for a sandbox whose end has begun; ``heard``: at another replica."""
        self.care.forget(sandbox.id)
        self._notes.forget(sandbox.id)
        start = self._starts.get(sandbox.id)
        start = None if start is asyncio.current_task() else start
        if start is None and heard:
            return  # who ended it takes it off
        if sandbox.state is State.ENDING:
            self.reclaimer.begin(sandbox.id, start, sandbox)
        elif start is not None:
            start.cancel()

    async def fail(self, sandbox_id: str, problem: Problem) -> None:
        """Ends a sandbox whose start has failed; nothing to one that runs."""
        await self.end(sandbox_id, problem, PLATFORM, Event.FAIL)

    async def fail_patiently(self, sandbox_id: str, problem: Problem) -> None:
        """As ``fail``, also when the store is away for a moment; never raises a ``Problem``."""
        try:
            await patiently(lambda: self.fail(sandbox_id, problem))
        except Problem as away:
            # Its deadline is on record: whoever sweeps next ends it.
            self._log.error("end not stored", sandbox_id=sandbox_id, detail=away.detail)

    async def bury(self, sandbox_id: str, problem: Problem) -> None:
        """Ends a sandbox that the cluster says is dead; never raises a ``Problem``."""
        try:
            await patiently(lambda: self.end(sandbox_id, problem, self._backend))
        except Problem as away:
            # Whoever compares the cluster with the record finds it.
            self._log.error("death not stored", sandbox_id=sandbox_id, code=problem.code, detail=away.detail)

    async def expire(self, sandbox_id: str) -> None:
        """Ends a sandbox whose time has passed, unless it was extended elsewhere; never raises a ``Problem``."""
        try:
            await self._expire(sandbox_id)
        except Problem:
            self.care.ttl.watch(sandbox_id, self._clock.now_ms() + EXPIRE_AGAIN_MS)

    async def _end_judged(self, sandbox: Sandbox, problem: Problem, by: str) -> bool:
        return await self.end(sandbox.id, problem, by, known=sandbox, once=True)

    async def _expire(self, sandbox_id: str) -> None:
        sandbox = await self._store.get(sandbox_id)
        if sandbox is None or sandbox.end is not None:
            return
        if sandbox.expires_at_ms > self._clock.now_ms():
            self.care.ttl.watch(sandbox_id, sandbox.expires_at_ms)
            return
        if self._ledger.doubts(sandbox):
            self.care.ttl.watch(sandbox_id, self._clock.now_ms() + EXPIRE_AGAIN_MS)
            return
        event, passed = Event.RETIRE if sandbox.unclaimed else Event.END, Problem("ttl_expired", "its ttl has passed")
        # One that is claimed or extended at this moment has another time from now on.
        if not await self.end(sandbox_id, passed, "reaper", event, sandbox, once=True):
            self.care.ttl.watch(sandbox_id, self._clock.now_ms() + EXPIRE_AGAIN_MS)
