"""Completing a start when its readiness push arrives: checks the kernel, announces it as ready."""

import asyncio
from dataclasses import dataclass

from controlplane.cluster import Started
from controlplane.errors import Problem
from controlplane.lifecycle.dependencies import Dependencies
from controlplane.lifecycle.record.annotations import Annotations
from controlplane.lifecycle.record.ledger import PLATFORM, Ledger
from controlplane.lifecycle.record.recovering_store import RecoveringStore
from controlplane.lifecycle.starting.phases import Phases
from controlplane.lifecycle.starting.start_notes import StartNotes
from controlplane.model import UNKNOWN_PHASE, Sandbox, State
from controlplane.model.states import Change, Event
from controlplane.telemetry import PushOutcome, Start


@dataclass(frozen=True, slots=True)
class Push:
    """What a sidecar sends when it has run a command in its sandbox, or knows that it never will.

    Attributes:
        sandbox_id: its sandbox; must be the one that its credential was issued to.
        address: where it answers; empty when the cluster knows.
        kernel: ``/proc/version`` as seen in the sandbox.
        boot_ms: from the sidecar's start until a command had run.
        failure: why it will never be ready.
    """

    sandbox_id: str
    address: str = ""
    kernel: str = ""
    boot_ms: int = 0
    failure: Problem | None = None


@dataclass(frozen=True, slots=True)
class Begun:
    """A start that this replica has begun.

    Attributes:
        credential: of its push.
        started: the cluster's answer.
    """

    phases: Phases
    credential: str
    started: asyncio.Future[Started]


class Completion:
    """Does the last step of a start; any replica can."""

    def __init__(
        self,
        deps: Dependencies,
        store: RecoveringStore,
        ledger: Ledger,
        annotations: Annotations,
        notes: StartNotes,
    ) -> None:
        self._deps = deps
        self._notes = notes
        self._store = store
        self._ledger = ledger
        self._annotations = annotations

    async def run(self, sandbox: Sandbox, push: Push, begun: Begun | None) -> PushOutcome:
        """Brings a sandbox to ``running`` (of a pool: to ``warm``), or ends it with the failure.

        Args:
            sandbox: its record.
            push: what its sidecar sent.
            begun: its start, if this replica began it.

        Raises:
            Problem: the store's, or the cause of an end that came first.
        """
        if sandbox.state is not State.STARTING or (begun is None and not push.address):
            raise Problem(
                "upstream_timeout", f"the start of {push.sandbox_id} is not awaited here yet", retry_after_ms=100
            )
        address = await self._address(sandbox, push, begun)
        phases = begun.phases if begun else await self._notes.phases(sandbox)
        phases.pushed(push.boot_ms)
        self._deps.cluster.pushed(sandbox.id, address)
        try:
            self._deps.cluster.check_kernel(push.kernel)
        except Problem as problem:
            await self._fail(sandbox.id, problem)
            return "failure"
        return await self._announce(sandbox, push, address, phases)

    async def _address(self, sandbox: Sandbox, push: Push, begun: Begun | None) -> str:
        if begun is None:
            return push.address
        if not begun.started.done() and (push.address and self._deps.cluster.annotates_behind):
            return push.address
        # The cluster's address has priority: the push comes from inside the sandbox and could be forged.
        address = (await asyncio.shield(begun.started)).address or push.address
        if not address:
            detail = f"neither its containers nor the readiness push of {sandbox.id} say where it is"
            await self._fail(sandbox.id, Problem("internal", detail))
            raise Problem("internal", detail)
        return address

    async def _announce(self, sandbox: Sandbox, push: Push, address: str, phases: Phases) -> PushOutcome:
        ready_at_ms = self._deps.clock.now_ms()
        facts = {"ready_at_ms": str(ready_at_ms), "address": address, "kernel": push.kernel}
        behind = self._deps.cluster.annotates_behind
        if not behind:
            # Before it is announced: a restart adopts only what it finds marked as ready.
            await self._deps.cluster.annotate(sandbox.id, facts)
        phases.total(sandbox.created_at_ms)
        timings_ms = {**sandbox.timings_ms, **phases.timings_ms}
        change = Change(ready_at_ms=ready_at_ms, address=address, kernel=push.kernel, timings_ms=timings_ms)
        after = await self._ledger.take(sandbox.id, Event.READY, change, sandbox)
        if after is None:
            return await self._overtaken(sandbox.id)
        if behind:
            # Its record on the cluster says whose it is, and it says the rest itself. Whose a pool's is, nobody says.
            (self._annotations.add if sandbox.unclaimed else self._annotations.hint)(sandbox.id, facts)
        start: Start = "pool" if sandbox.unclaimed else "cold"
        for phase, duration_ms in timings_ms.items():
            # Nobody asks why a pool's was slow, by its id.
            exemplar = sandbox.id if phase == "total" and start == "cold" else ""
            if phase != UNKNOWN_PHASE:
                self._deps.metrics.phase(phase, duration_ms, start, exemplar)
        return "accepted"

    async def _fail(self, sandbox_id: str, problem: Problem) -> None:
        await self._ledger.end(sandbox_id, problem, PLATFORM, Event.FAIL)

    async def _overtaken(self, sandbox_id: str) -> PushOutcome:
        sandbox = await self._store.get(sandbox_id)
        if sandbox is not None and sandbox.end is not None:
            raise sandbox.end.problem(sandbox)
        return "duplicate"
