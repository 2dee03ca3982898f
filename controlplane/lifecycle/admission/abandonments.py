"""What becomes, in the background, of sandboxes whose creators went away before they were given them."""

import asyncio

import structlog

from controlplane.clock import Clock
from controlplane.errors import Problem
from controlplane.lifecycle.record import callers
from controlplane.lifecycle.record.ledger import PLATFORM, Ledger
from controlplane.lifecycle.record.retry import retried_while_away
from controlplane.lifecycle.waiting import Answer
from controlplane.model import Sandbox
from controlplane.store import Admitted, Claimed


class Abandonments:
    """Notes that creators went away; what it begins runs in ``group``."""

    def __init__(self, ledger: Ledger, clock: Clock, group: asyncio.TaskGroup) -> None:
        self._ledger = ledger
        self._clock = clock
        self._group = group
        self._closed = False
        self._log = structlog.get_logger("abandonments")

    def close(self) -> None:
        """Begins nothing more: the next start finds the rest, or the replica that sweeps."""
        self._closed = True

    def abandon(self, sandbox: Sandbox, caller: str = "") -> None:
        """Notes that one try of a create went away.

        Without a key to come back with, the sandbox ends now; else a while later, if no other create wants it.
        """
        if sandbox.idempotency_key is None:
            self.disown(sandbox)
        else:
            self.drop_caller(sandbox, caller)

    def disown(self, sandbox: Sandbox) -> None:
        """Ends a sandbox that its creator will never hear of."""
        gone = Problem("create_abandoned", "its creator went away before it was ready")
        if not self._closed:
            end = self._ledger.end_with_retries(sandbox.id, gone, PLATFORM)
            self._group.create_task(end, name=f"disown {sandbox.id}")

    def drop_caller(self, sandbox: Sandbox, caller: str) -> None:
        """Takes one try of a create off the record; the sandbox ends a while later, if no other one wants it."""
        if not self._closed:
            self._group.create_task(self._drop_caller(sandbox.id, caller), name=f"drop caller of {sandbox.id}")

    def unwanted(self, answer: Answer) -> None:
        """Takes an answer of the store that came when its caller had gone."""
        if not isinstance(answer, Admitted | Claimed):
            return
        if answer.sandbox.idempotency_key is None:
            self.disown(answer.sandbox)
        for caller in answer.sandbox.callers:
            self.drop_caller(answer.sandbox, caller)

    async def _drop_caller(self, sandbox_id: str, caller: str) -> None:
        def left(record: Sandbox) -> Sandbox:
            return callers.left(record, caller, self._clock.now_ms())

        try:
            await retried_while_away(lambda: self._ledger.change(sandbox_id, left))
        except Problem as away:
            self._log.error(
                "not stored that its creator went away; its lease, idle timeout or ttl ends it",
                sandbox_id=sandbox_id,
                detail=away.detail,
            )
