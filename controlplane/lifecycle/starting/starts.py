"""The starts that this replica runs: one task and one deadline for each."""

import asyncio
from collections.abc import Mapping

import structlog

from controlplane.clock import Clock
from controlplane.errors import Problem
from controlplane.lifecycle.record.ledger import PLATFORM, Ledger
from controlplane.lifecycle.record.recovering_store import RecoveringStore
from controlplane.lifecycle.record.retry import retried_while_away
from controlplane.lifecycle.record.transition import Transition
from controlplane.lifecycle.starting.starter import Starter
from controlplane.model import Sandbox
from controlplane.model.states import Event


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
        deadline = asyncio.get_running_loop().call_later(within_s, self._overdue, sandbox.id)

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
        try:
            sandbox = await retried_while_away(lambda: self._store.get(sandbox_id))
        except Problem as away:
            self._log.error("overdue start not ended, a later round ends it", sandbox_id=sandbox_id, detail=away.detail)
            return
        if sandbox is not None and (before_ms is None or sandbox.start_by_ms <= before_ms):
            await self._ledger.end_with_retries(sandbox_id, self._starter.overdue(sandbox), PLATFORM, Event.FAIL)

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

    def _overdue(self, sandbox_id: str) -> None:
        self._group.create_task(self.end_overdue(sandbox_id), name=f"overdue {sandbox_id}")
