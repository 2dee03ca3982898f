"""``RoomNotes``: writes on record that a start waits for room, so that every replica knows."""

from contextlib import suppress

from controlplane.clock import Clock
from controlplane.errors import Problem
from controlplane.lifecycle.record.changes import waited_for
from controlplane.lifecycle.record.ledger import Ledger
from controlplane.model import WAITS_FOR_ROOM, Sandbox


class RoomNotes:
    """None is worth a start: a replica that did not hear of one hears of it when it begins."""

    def __init__(self, ledger: Ledger, clock: Clock) -> None:
        self._ledger = ledger
        self._clock = clock

    async def write(self, sandbox: Sandbox) -> None:
        """Writes it for a start that waits. Cost: a change of its record."""
        with suppress(Problem):
            await self._ledger.change(sandbox.id, self._waits)

    def _waits(self, record: Sandbox) -> Sandbox:
        return waited_for(record, self._clock.now_ms(), WAITS_FOR_ROOM)
