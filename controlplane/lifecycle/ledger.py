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
        if (future := self._unsettled.get(sandbox.id)) is not None:
            return await asyncio.shield(future)
        # It may have settled since the caller got its record.
        return await self._store.get(sandbox.id) or sandbox

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

    async def end(self, sandbox_id: str, cause: EndCause, event: Event) -> Sandbox | None:
        """Begins the end by ``END`` or ``FAIL``; None when it has begun already: the first cause stays."""
        return await self.take(sandbox_id, event, Change(end=cause))

    async def has_ended(self, sandbox_id: str) -> bool:
        """Whether its end is on record."""
        sandbox = await self._store.get(sandbox_id)
        return sandbox is not None and sandbox.end is not None

    async def announce_ends(self) -> None:
        """Tells the gateways of the ends that the store has kept from before."""
        for sandbox in await self._store.find(None, {}, {State.ENDED}):
            self._board.withdraw(sandbox)

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
