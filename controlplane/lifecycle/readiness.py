"""The door for the sidecars' pushes: who may push, and what it means; at whichever replica it lands."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field

from controlplane.cluster import Started
from controlplane.errors import Problem
from controlplane.lifecycle.completion import Begun, Completion, Fail, Push
from controlplane.lifecycle.keeper import Keeper
from controlplane.lifecycle.ledger import Ledger
from controlplane.lifecycle.notes import Notes
from controlplane.lifecycle.parts import Parts
from controlplane.lifecycle.phases import Phases
from controlplane.model import UP, State
from controlplane.telemetry import PushOutcome


@dataclass(slots=True)
class _Busy:
    """Pushes of one sandbox that are being taken."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0


class Readiness:
    """Matches pushes with starts. A push is safe to repeat; a forged one changes nothing.

    Args:
        fail: ends a sandbox whose start has failed.
    """

    def __init__(
        self,
        parts: Parts,
        store: Keeper,
        ledger: Ledger,
        notes: Notes,
        fail: Fail,
    ) -> None:
        self._parts = parts
        self._store = store
        self._ledger = ledger
        self._fail = fail
        self._completion = Completion(parts, store, ledger, notes, fail)
        self._begun: dict[str, Begun] = {}
        self._busy: dict[str, _Busy] = {}

    @property
    def unanswered(self) -> set[asyncio.Future[Started]]:
        """The starts of this replica that the cluster has not answered yet."""
        return {one.started for one in self._begun.values() if not one.started.done()}

    @contextmanager
    def awaited(self, sandbox_id: str, phases: Phases) -> Iterator[asyncio.Future[Started]]:
        """Announces a start, before the cluster hears of it; the caller sets the cluster's answer."""
        future: asyncio.Future[Started] = asyncio.get_running_loop().create_future()
        self._begun[sandbox_id] = Begun(phases, future)
        try:
            yield future
        finally:
            del self._begun[sandbox_id]
            if not future.done():
                future.set_exception(Problem("upstream_timeout", f"the start of {sandbox_id} was given up here"))
                future.exception()  # nobody may be waiting for it

    async def accept(self, credential: str, push: Push) -> None:
        """Takes a push and completes the start; returns when it is done (also when it is a repetition).

        Raises:
            Problem: unauthenticated or permission_denied (forged), sandbox_not_found (unknown here), or the cause of
                the end when it comes too late: the sidecar may stop repeating it. upstream_timeout: repeat it.
        Cost: one call to the store when this replica began the start, else two.
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
            self._parts.metrics.pushed(outcome)

    def _check(self, credential: str, push: Push) -> None:
        speaks_for = self._parts.key.verify_readiness(credential)
        if speaks_for != push.sandbox_id:
            raise Problem("permission_denied", f"the credential speaks for {speaks_for}, not for {push.sandbox_id}")

    @asynccontextmanager
    async def _alone(self, sandbox_id: str) -> AsyncIterator[None]:
        # A push that is repeated while the first is being completed waits for it.
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
            # Its credential is good, so it was on record a moment ago: a store that was lost is being rebuilt.
            raise Problem("upstream_timeout", f"{push.sandbox_id} is not on record now", retry_after_ms=500)
        if sandbox is None:
            raise Problem("sandbox_not_found", f"there is no sandbox {push.sandbox_id}")
        if sandbox.end is not None:
            raise sandbox.end.problem(sandbox.id)
        if sandbox.state in UP:
            return "duplicate"
        if push.failure is not None:
            await self._fail(sandbox.id, push.failure)
            return "failure"
        return await self._completion.run(sandbox, push, self._begun.get(sandbox.id))


def _refusal(problem: Problem) -> PushOutcome:
    if problem.code in ("unauthenticated", "permission_denied"):
        return "forged"
    if problem.code == "sandbox_not_found" or "ended_at_ms" in problem.details:
        return "late"
    return "error"
