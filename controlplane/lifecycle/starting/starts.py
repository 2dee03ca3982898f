"""The starts that this replica runs: one task and one deadline for each."""

import asyncio
from collections.abc import Mapping
from typing import Final

import structlog

from controlplane.clock import Clock
from controlplane.cluster import Pulling
from controlplane.errors import Problem
from controlplane.lifecycle.record.changes import pulled_since
from controlplane.lifecycle.record.ledger import PLATFORM, Ledger
from controlplane.lifecycle.record.recovering_store import RecoveringStore
from controlplane.lifecycle.record.retry import retried_while_away
from controlplane.lifecycle.record.transition import Transition
from controlplane.lifecycle.starting.starter import Starter
from controlplane.model import Sandbox
from controlplane.model.states import Event

# So long before a start's deadline it is asked what the start waits for.
LOOK_BEFORE_S: Final = 0.5


class Starts:
    """Runs each start in a task of ``group``, and ends the sandbox when its start fails or is overdue."""

    def __init__(
        self, starter: Starter, store: RecoveringStore, ledger: Ledger, clock: Clock, group: asyncio.TaskGroup
    ) -> None:
        self._starter = starter
        self._store = store
        self._ledger = ledger
        self._clock = clock
        self._group = group
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._log = structlog.get_logger("starts")

    @property
    def tasks(self) -> Mapping[str, asyncio.Task[None]]:
        """The starts under way here, by sandbox."""
        return self._tasks

    def begin(self, sandbox: Sandbox) -> bool:
        """Begins the start of an admitted sandbox, or goes on with one that another replica has left.

        Returns:
            False when it is under way here.
        """
        if sandbox.id in self._tasks:
            return False
        self._ledger.hold(sandbox)
        task = self._group.create_task(self._run(sandbox), name=f"start {sandbox.id}")
        self._tasks[sandbox.id] = task
        # Beside the start, not around it: a start that waits for an engine which hangs unwinds too late to tell.
        within_s = max(0, sandbox.start_by_ms - self._clock.now_ms()) / 1000
        deadline = asyncio.get_running_loop().call_later(max(0, within_s - LOOK_BEFORE_S), self._overdue, sandbox)

        def over(_: asyncio.Task[None]) -> None:
            deadline.cancel()
            self._tasks.pop(sandbox.id, None)
            self._ledger.release(sandbox.id)

        task.add_done_callback(over)
        return True

    def on(self, transition: Transition) -> None:
        """Cancels the start of a sandbox that has ended; a start that has just failed ends by itself."""
        if transition.after.end is None:
            return
        task = self._tasks.get(transition.after.id)
        if task is not None and task is not asyncio.current_task() and not task.cancelling():
            task.cancel()

    async def end_overdue(self, sandbox_id: str, before_ms: int | None = None) -> None:
        """Ends a start whose deadline has come; never raises a ``Problem``.

        Args:
            sandbox_id: of which sandbox.
            before_ms: only if its deadline was before this moment (Unix ms).
        """
        sandbox = await self._read(sandbox_id)
        if sandbox is None or (before_ms is not None and sandbox.start_by_ms > before_ms):
            return
        pull = await self._pulling(sandbox)
        await self._end_overdue(await self._read(sandbox_id) if pull else sandbox, pull)

    async def _read(self, sandbox_id: str) -> Sandbox | None:
        try:
            return await retried_while_away(lambda: self._store.get(sandbox_id))
        except Problem as away:
            self._log.error("overdue start not ended, a later round ends it", sandbox_id=sandbox_id, detail=away.detail)
            return None

    async def _pulling(self, sandbox: Sandbox) -> Pulling | None:
        """What its node pulls, which is on record then."""
        if (pull := await self._starter.pulling(sandbox)) is not None:
            try:
                await self._ledger.change(sandbox.id, lambda record: pulled_since(record, pull.since_ms))
            except Problem as away:
                self._log.warning(
                    "not on record that a start waits for a pull", sandbox_id=sandbox.id, detail=away.detail
                )
        return pull

    async def _end_overdue(self, sandbox: Sandbox | None, pull: Pulling | None) -> None:
        if sandbox is not None:
            problem = self._starter.overdue(sandbox, pull)
            await self._ledger.end_with_retries(sandbox.id, problem, PLATFORM, Event.FAIL)

    async def _run(self, sandbox: Sandbox) -> None:
        try:
            await self._starter.bring_up(sandbox)
        except Problem as problem:
            self._log.warning(
                "start failed, its sandbox is ended", sandbox_id=sandbox.id, code=problem.code, detail=problem.detail
            )
            await self._ledger.end_with_retries(sandbox.id, problem, PLATFORM, Event.FAIL)
        except Exception:
            self._log.exception("start failed, its sandbox is ended", sandbox_id=sandbox.id)
            bug = Problem("internal", f"the start of {sandbox.id} failed in the control plane")
            await self._ledger.end_with_retries(sandbox.id, bug, PLATFORM, Event.FAIL)

    def _overdue(self, sandbox: Sandbox) -> None:
        self._group.create_task(self._end_at_deadline(sandbox), name=f"overdue {sandbox.id}")

    async def _end_at_deadline(self, begun: Sandbox) -> None:
        """Ends a start when its deadline comes, a moment after it was asked what it waits for: its caller waits."""
        left_s = (begun.start_by_ms - self._clock.now_ms()) / 1000
        pull = None
        if left_s > 0 and (sandbox := await self._read(begun.id)) is not None:
            pull = await self._pulling(sandbox)
        await asyncio.sleep(max(0, begun.start_by_ms - self._clock.now_ms()) / 1000)
        await self._end_overdue(await self._read(begun.id), pull)
