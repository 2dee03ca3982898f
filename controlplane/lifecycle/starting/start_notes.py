"""``StartNotes``: what a replica knows of the starts that it has begun, for the one at which their pushes land."""

from typing import Final

import structlog

from controlplane.clock import Clock
from controlplane.errors import Problem
from controlplane.lifecycle.record.recovering_store import RecoveringStore
from controlplane.lifecycle.starting.phases import Phases
from controlplane.model import Sandbox

# Behind the deadline of the start, which clocks of replicas see at different times.
SPARE_MS: Final = 60_000


class StartNotes:
    """Notes in the store of many replicas. None is worth a start: without it a phase is unknown."""

    def __init__(self, store: RecoveringStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._log = structlog.get_logger("start notes")

    async def write(self, sandbox: Sandbox, phases: Phases) -> None:
        """Keeps the phases until the start is over; the first note stays. Cost: a call to a store of many."""
        if not self._store.shared:
            return
        ttl_ms = max(0, sandbox.start_by_ms - self._clock.now_ms()) + SPARE_MS
        try:
            await self._store.write_note(_name(sandbox), phases.text, ttl_ms)
        except Problem as problem:
            self._log.warning("phases of a start not noted", sandbox_id=sandbox.id, detail=problem.detail)

    async def phases(self, sandbox: Sandbox) -> Phases:
        """The stopwatch of a start that another replica has begun."""
        note = ""
        if self._store.shared:
            try:
                note = await self._store.note(_name(sandbox))
            except Problem as problem:
                self._log.warning("phases of a start not read", sandbox_id=sandbox.id, detail=problem.detail)
        return Phases(self._clock, sandbox, note)


def _name(sandbox: Sandbox) -> str:
    return f"start:{sandbox.id}"
