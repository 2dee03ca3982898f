"""``Lives``: every sandbox from its admission to its confirmed end. Owns the starts, their deadlines and the loops."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from controlplane.errors import Problem
from controlplane.lifecycle.ledger import Ledger
from controlplane.lifecycle.parts import Parts
from controlplane.lifecycle.readiness import Readiness
from controlplane.lifecycle.reaper import Reaper
from controlplane.lifecycle.rebuild import Rebuilder
from controlplane.lifecycle.reclaim import Reclaimer
from controlplane.lifecycle.starts import Starter
from controlplane.lifecycle.states import Event
from controlplane.model import EndCause, Sandbox, State

PLATFORM: Final = "control plane"
CLOSE_WITHIN_S: Final = 10.0
# What is left after that waits for an engine which does not answer; this is for the loop to unwind.
UNWIND_WITHIN_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class Deleted:
    """What a delete of many came to: ids, and who could not be confirmed and why."""

    ids: Sequence[str]
    failed: Mapping[str, Problem]


class Lives:
    """Begins and ends sandboxes; everything that it starts runs in ``group`` and ends with ``close``."""

    def __init__(self, parts: Parts, starts_at_once: int, group: asyncio.TaskGroup) -> None:
        self._parts = parts
        self._group = group
        self.ledger = Ledger(parts.store, parts.board, parts.metrics)
        self.readiness = Readiness(parts.key, parts.store)
        self.reaper = Reaper(parts.clock)
        self.reclaimer = Reclaimer(parts.cluster, self.ledger, group)
        self.starter = Starter(parts, self.ledger, self.readiness, starts_at_once)
        self._starts: dict[str, asyncio.Task[None]] = {}
        self._loops: tuple[asyncio.Task[None], ...] = ()
        self._log = structlog.get_logger("lives")

    async def open(self) -> None:
        """Adopts what ran before, then begins to reap and to watch.

        Raises:
            Problem: the cluster cannot be listed.
        """
        await self._rebuild()
        self._loops = (
            self._group.create_task(self.reaper.run(self._expire), name="reaper"),
            self._group.create_task(self._watch(), name="watch"),
        )

    async def close(self) -> None:
        """Ends the loops and gives what is under way a little time, then leaves it: the next start finds it."""
        starts = set(self._starts.values())
        for owned in (*self._loops, *starts):
            owned.cancel()
        left = await _ended(starts | self.reclaimer.under_way, CLOSE_WITHIN_S)
        for _ in range(2):  # the first one is a request: it waits for the engine's answer; the second one insists
            for one in left:
                one.cancel()
            left = await _ended(left, UNWIND_WITHIN_S)

    def begin(self, sandbox: Sandbox) -> None:
        """Begins the start of an admitted sandbox."""
        self.reaper.watch(sandbox.id, sandbox.expires_at_ms)
        start = self._group.create_task(self._start(sandbox), name=f"start {sandbox.id}")
        self._starts[sandbox.id] = start
        # Beside the start, not around it: a start that waits for an engine which hangs unwinds too late to tell.
        within_s = sandbox.spec.start_timeout_ms / 1000
        deadline = asyncio.get_running_loop().call_later(within_s, self._overdue, sandbox.id)

        def over(_: asyncio.Task[None]) -> None:
            deadline.cancel()
            self._starts.pop(sandbox.id, None)

        start.add_done_callback(over)

    async def end(self, sandbox_id: str, problem: Problem, by: str, event: Event = Event.END) -> None:
        """Ends a sandbox with this cause, unless its end has begun: the first cause stays.

        Quota is free and the gateways know when this returns; the cluster is asked in the background.
        """
        cause = EndCause(problem.code, problem.detail, self._parts.clock.now_ms(), by)
        sandbox = await self.ledger.end(sandbox_id, cause, event)
        if sandbox is None:
            return
        self.reaper.forget(sandbox_id)
        start = self._starts.get(sandbox_id)
        start = None if start is asyncio.current_task() else start
        if sandbox.state is State.ENDING:
            self.reclaimer.begin(sandbox_id, start)
        elif start is not None:
            start.cancel()

    async def end_all(self, sandboxes: Sequence[Sandbox], problem: Problem, by: str) -> Deleted:
        """Ends many together and waits until the cluster has confirmed, or not in time."""
        # All ends first: quota and routes of the last one do not wait for the cluster to take the first one off.
        for sandbox in sandboxes:
            await self.end(sandbox.id, problem, by)
        confirmations = await asyncio.gather(
            *(self.reclaimer.confirmed(sandbox) for sandbox in sandboxes), return_exceptions=True
        )
        failed: dict[str, Problem] = {}
        for sandbox, confirmation in zip(sandboxes, confirmations, strict=True):
            if isinstance(confirmation, Problem):
                failed[sandbox.id] = confirmation
            elif confirmation is not None:
                raise confirmation
        return Deleted([sandbox.id for sandbox in sandboxes if sandbox.id not in failed], failed)

    async def _start(self, sandbox: Sandbox) -> None:
        try:
            await self.starter.bring_up(sandbox)
        except Problem as problem:
            self._log.warning("start failed", sandbox_id=sandbox.id, code=problem.code, detail=problem.detail)
            await self.end(sandbox.id, problem, PLATFORM, Event.FAIL)
        except Exception:
            self._log.exception("start failed", sandbox_id=sandbox.id)
            detail = f"the start of {sandbox.id} failed in the control plane"
            await self.end(sandbox.id, Problem("internal", detail), PLATFORM, Event.FAIL)

    def _overdue(self, sandbox_id: str) -> None:
        self._group.create_task(self._end_overdue(sandbox_id), name=f"overdue {sandbox_id}")

    async def _end_overdue(self, sandbox_id: str) -> None:
        if (sandbox := await self._parts.store.get(sandbox_id)) is not None:
            await self.end(sandbox_id, self.starter.overdue(sandbox), PLATFORM, Event.FAIL)

    async def _rebuild(self) -> None:
        parts = self._parts
        await self.ledger.announce_ends()
        found = await Rebuilder(parts.cluster, parts.sidecars, self.ledger, parts.key, parts.clock).run()
        for sandbox in found.adopted:
            self.reaper.watch(sandbox.id, sandbox.expires_at_ms)
        for sandbox_id in (*(dead.id for dead in found.dead), *found.removed):
            self.reclaimer.begin(sandbox_id)
        if found.adopted or found.dead or found.removed:
            self._log.info("rebuilt", adopted=len(found.adopted), dead=len(found.dead), removed=len(found.removed))

    async def _expire(self, sandbox_id: str) -> None:
        await self.end(sandbox_id, Problem("ttl_expired", "its ttl has passed"), "reaper")

    async def _watch(self) -> None:
        by = self._parts.cluster.describe().backend
        async for death in self._parts.cluster.watch():
            await self.end(death.sandbox_id, Problem(death.cause, death.detail), by)


async def _ended(activities: set[asyncio.Task[None]], within_s: float) -> set[asyncio.Task[None]]:
    """Those that have not ended in time."""
    return (await asyncio.wait(activities, timeout=within_s))[1] if activities else set()
