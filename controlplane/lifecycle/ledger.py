"""The only place where a record changes: compare and set around the pure table, then the effects, once each."""

import asyncio
from dataclasses import replace

from controlplane.lifecycle.routes import RouteBoard
from controlplane.lifecycle.states import NO_CHANGE, Change, Effect, Event, apply
from controlplane.model import EndCause, Sandbox, State
from controlplane.store import Store
from controlplane.telemetry import Metrics


class Ledger:
    """Applies events to records, tells the gateways, and wakes who waits for a start to settle."""

    def __init__(self, store: Store, board: RouteBoard, metrics: Metrics) -> None:
        self._store = store
        self._board = board
        self._metrics = metrics
        self._unsettled: dict[str, asyncio.Future[Sandbox]] = {}

    def expect(self, sandbox_id: str) -> None:
        """Lets ``settled`` wait for this sandbox, from its admission on."""
        self._unsettled[sandbox_id] = asyncio.get_running_loop().create_future()

    def unexpect(self, sandbox_id: str) -> None:
        """Takes ``expect`` back: the sandbox was not admitted."""
        self._unsettled.pop(sandbox_id, None)

    async def settled(self, sandbox: Sandbox) -> Sandbox:
        """The record once the start is over, for better or worse; at once when it already is.

        A cancelled call leaves the start and the other waiters alone.
        """
        future = self._unsettled.get(sandbox.id)
        return sandbox if future is None else await asyncio.shield(future)

    async def take(self, sandbox_id: str, event: Event, change: Change = NO_CHANGE) -> Sandbox | None:
        """Applies an event; the new record, or None when the event changes nothing (any more)."""
        while (before := await self._store.get(sandbox_id)) is not None:
            applied = apply(before, event, change)
            if applied is None:
                return None
            after, effects = applied
            if await self._store.replace(after, before.version):
                self._perform(after, effects)
                return after
        return None

    async def end(self, sandbox_id: str, cause: EndCause) -> Sandbox | None:
        """Begins the end; None when it has begun already: the first cause stays."""
        return await self.take(sandbox_id, Event.END, Change(end=cause))

    async def extend(self, sandbox_id: str, expires_at_ms: int) -> Sandbox | None:
        """Moves the expiry later, never earlier; the record, or None when there is none."""
        while (before := await self._store.get(sandbox_id)) is not None:
            if before.expires_at_ms >= expires_at_ms or not before.state.counted:
                return before
            after = replace(before, expires_at_ms=expires_at_ms, version=before.version + 1)
            if await self._store.replace(after, before.version):
                return after
        return None

    async def adopt(self, sandbox: Sandbox) -> None:
        """Puts a sandbox on record that was found on the cluster, running or dead, and tells the gateways."""
        await self._store.restore(sandbox)
        if sandbox.state is State.RUNNING:
            self._board.publish(sandbox)
        elif sandbox.end is not None:
            self._board.withdraw(sandbox)

    def _perform(self, sandbox: Sandbox, effects: frozenset[Effect]) -> None:
        if Effect.ROUTE in effects:
            self._board.publish(sandbox)
            self._settle(sandbox)
        if Effect.UNROUTE in effects:
            self._board.withdraw(sandbox)
            self._settle(sandbox)
            if sandbox.end is not None:
                self._metrics.ended(sandbox.end.cause)

    def _settle(self, sandbox: Sandbox) -> None:
        future = self._unsettled.pop(sandbox.id, None)
        if future is not None and not future.done():
            future.set_result(sandbox)
