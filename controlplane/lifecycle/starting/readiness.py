"""Takes the sidecars' readiness pushes, at whichever replica they land: checks the credential, completes the start."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from hmac import compare_digest

from controlplane.cluster import Started
from controlplane.errors import Problem
from controlplane.lifecycle.dependencies import Dependencies
from controlplane.lifecycle.record.annotations import Annotations
from controlplane.lifecycle.record.ledger import PLATFORM, Ledger
from controlplane.lifecycle.record.recovering_store import RecoveringStore
from controlplane.lifecycle.starting.completion import Begun, Completion, Push
from controlplane.lifecycle.starting.phases import Phases
from controlplane.lifecycle.starting.start_notes import StartNotes
from controlplane.model import UP, State
from controlplane.model.states import Event
from controlplane.telemetry import PushOutcome


@dataclass(slots=True)
class _Busy:
    """A lock for the pushes of one sandbox, and how many pushes use it."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0


class Readiness:
    """Matches pushes with starts. A push is safe to repeat; a forged one changes nothing."""

    def __init__(self, deps: Dependencies, store: RecoveringStore, ledger: Ledger, annotations: Annotations) -> None:
        self._deps = deps
        self._store = store
        self._ledger = ledger
        self.notes = StartNotes(store, deps.clock)
        self._completion = Completion(deps, store, ledger, annotations, self.notes)
        self._begun: dict[str, Begun] = {}
        self._busy: dict[str, _Busy] = {}

    @property
    def unanswered(self) -> set[asyncio.Future[Started]]:
        """The starts of this replica that the cluster has not answered yet."""
        return {one.started for one in self._begun.values() if not one.started.done()}

    @contextmanager
    def awaited(self, sandbox_id: str, phases: Phases, credential: str) -> Iterator[asyncio.Future[Started]]:
        """Registers a start before the cluster is called; the caller sets the future to the cluster's answer.

        Args:
            sandbox_id: of the start.
            phases: its stopwatch.
            credential: which its sidecar is given.
        """
        future: asyncio.Future[Started] = asyncio.get_running_loop().create_future()
        self._begun[sandbox_id] = Begun(phases, credential, future)
        try:
            yield future
        finally:
            del self._begun[sandbox_id]
            if not future.done():
                future.set_exception(Problem("upstream_timeout", f"the start of {sandbox_id} was given up here"))
                future.exception()  # marks it as retrieved: there may be no task that awaits it

    async def accept(self, credential: str, push: Push) -> None:
        """Accepts a push and completes the start; returns when that is done, also for a repeated push.

        Raises:
            Problem: unauthenticated or permission_denied (forged), sandbox_not_found (unknown here), or the end's
                cause when the push comes too late: the sidecar may stop retrying. upstream_timeout: it must retry.
        Cost: one call to the store when this replica began the start, else three.
        """
        outcome: PushOutcome = "error"
        try:
            self._check(credential, push)
            async with self._alone(push.sandbox_id):
                outcome = await self._take(push)
        except Problem as problem:
            outcome = _refusal(problem)
            raise
        finally:
            self._deps.metrics.pushed(outcome)

    def _check(self, credential: str, push: Push) -> None:
        begun = self._begun.get(push.sandbox_id)
        # The very one that was given to its sidecar, so nothing of it has to be verified, which takes 0.2 ms.
        if begun is not None and compare_digest(begun.credential.encode(), credential.encode()):
            return
        speaks_for = self._deps.key.verify_readiness(credential)
        if speaks_for != push.sandbox_id:
            raise Problem("permission_denied", f"the credential speaks for {speaks_for}, not for {push.sandbox_id}")

    @asynccontextmanager
    async def _alone(self, sandbox_id: str) -> AsyncIterator[None]:
        # A repeated push waits until the first one is completed.
        busy = self._busy.setdefault(sandbox_id, _Busy())
        busy.users += 1
        try:
            async with busy.lock:
                yield
        finally:
            busy.users -= 1
            if not busy.users:
                del self._busy[sandbox_id]

    async def _take(self, push: Push) -> PushOutcome:
        sandbox = self._ledger.held(push.sandbox_id)
        if sandbox is None or sandbox.state is not State.STARTING:
            sandbox = await self._store.get(push.sandbox_id)
        if sandbox is None and self._store.shared:
            # Its credential is valid, so it was on record a moment ago: the store was lost and is being rebuilt.
            raise Problem("upstream_timeout", f"{push.sandbox_id} is not on record now", retry_after_ms=500)
        if sandbox is None:
            raise Problem("sandbox_not_found", f"there is no sandbox {push.sandbox_id}")
        if sandbox.end is not None:
            raise sandbox.end.problem(sandbox)
        if sandbox.state in UP:
            return "duplicate"
        if push.failure is not None:
            await self._ledger.end(sandbox.id, push.failure, PLATFORM, Event.FAIL)
            return "failure"
        return await self._completion.run(sandbox, push, self._begun.get(sandbox.id))


def _refusal(problem: Problem) -> PushOutcome:
    if problem.code in ("unauthenticated", "permission_denied"):
        return "forged"
    if problem.code == "sandbox_not_found" or "ended_at_ms" in problem.details:
        return "late"
    return "error"
