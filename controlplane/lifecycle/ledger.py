"""The only place where a record changes: compare and set around the pure table, then the effects, once each.

What another replica has changed is heard here too: it has the same effects on routes and on who waits.
"""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from controlplane.clock import Clock
from controlplane.errors import Problem
from controlplane.lifecycle.keeper import Keeper
from controlplane.lifecycle.routes import RouteBoard
from controlplane.lifecycle.states import NO_CHANGE, Change, Effect, Event, apply
from controlplane.model import EndCause, Sandbox, State
from controlplane.store import Store
from controlplane.telemetry import Metrics

# How far a new look goes back behind the last one: replicas' clocks may differ by so much.
OVERLAP_MS: Final = 60_000


class Ledger:
    """Applies events to records, tells the gateways, and wakes who waits for a start to settle."""

    def __init__(self, store: Keeper, board: RouteBoard, metrics: Metrics, clock: Clock) -> None:
        self._store = store
        self._board = board
        self._metrics = metrics
        self._clock = clock
        self._unsettled: dict[str, asyncio.Future[Sandbox]] = {}
        self._held: dict[str, Sandbox] = {}
        self._leaving: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._ends_read_ms = 0

    def expect(self, sandbox_id: str) -> asyncio.Future[Sandbox]:
        """Lets ``settled`` wait for this sandbox, from its admission on."""
        if sandbox_id not in self._unsettled:
            self._unsettled[sandbox_id] = asyncio.get_running_loop().create_future()
        return self._unsettled[sandbox_id]

    async def look(self, sandbox_id: str) -> None:
        """Hears what is on record of a sandbox now; who waits for it is told when its start is over."""
        await self._look(sandbox_id)

    def unexpect(self, sandbox_id: str) -> None:
        """Takes ``expect`` back: the sandbox was not admitted."""
        self._unsettled.pop(sandbox_id, None)

    def leave(self) -> None:
        """Tells who waits that the sandboxes will get ready elsewhere."""
        if not self._leaving.done():
            self._leaving.set_result(None)

    async def settled(self, sandbox: Sandbox) -> Sandbox:
        """The record once the start is over, for better or worse; at once when it already is.

        A cancelled call leaves the start and the other waiters alone.

        Raises:
            Problem: draining, this replica leaves before the start is over; sandbox_not_found, the record has gone.
        """
        known = sandbox.id in self._unsettled
        future = self.expect(sandbox.id)
        if not known:
            # Another replica brings it up, or it has settled since the caller got its record.
            await self._look(sandbox.id, expected=True)
        await asyncio.wait((future, self._leaving), return_when=asyncio.FIRST_COMPLETED)
        if future.done():
            return future.result()
        raise Problem("draining", f"{sandbox.id} gets ready elsewhere: ask again with its key", retry_after_ms=200)

    def hold(self, sandbox: Sandbox) -> None:
        """Keeps the newest record of a start that this replica runs at hand, until ``release``."""
        self._held[sandbox.id] = sandbox

    def release(self, sandbox_id: str) -> None:
        """Ends ``hold``."""
        self._held.pop(sandbox_id, None)

    def held(self, sandbox_id: str) -> Sandbox | None:
        """The record of a start that this replica runs, as it last stored it; a change from elsewhere may be newer."""
        return self._held.get(sandbox_id)

    async def restore_held(self, store: Store | Keeper) -> None:
        """Puts the starts that this replica runs on record again, in a store that has forgotten them."""
        for sandbox in [*self._held.values()]:
            await store.restore(sandbox)

    async def check_held(self) -> None:
        """Looks whether the starts of this replica are on record: a store may have been rebuilt without them."""
        first = next(iter(self._held), None)
        if first is not None and await self._store.get(first) is None:
            await self.restore_held(self._store)

    async def take(
        self, sandbox_id: str, event: Event, change: Change = NO_CHANGE, known: Sandbox | None = None
    ) -> Sandbox | None:
        """Applies an event; the new record, or None when the event changes nothing (any more).

        Args:
            sandbox_id: whose.
            event: what has happened.
            change: what it does to the record besides the state.
            known: the record, if the caller has just had it: saves a question.
        """
        before = known or await self._record(sandbox_id)
        while before is not None:
            applied = apply(before, event, change)
            if applied is None:
                return None
            after, effects = applied
            if await self._store.replace(after, before.version):
                self._perform(after, effects)
                return after
            before = await self._record(sandbox_id)
        return None

    async def end(self, sandbox_id: str, cause: EndCause, event: Event) -> Sandbox | None:
        """Begins the end by ``END`` or ``FAIL``; None when it has begun already: the first cause stays."""
        return await self.take(sandbox_id, event, Change(end=cause), self._held.get(sandbox_id))

    async def extend(self, sandbox_id: str, expires_at_ms: int) -> Sandbox | None:
        """Moves the expiry later, never earlier; the record, or None when there is none."""
        while (before := await self._store.get(sandbox_id)) is not None:
            if before.expires_at_ms >= expires_at_ms or not before.state.counted:
                return before
            after = replace(before, expires_at_ms=expires_at_ms, version=before.version + 1)
            if await self._store.replace(after, before.version):
                return after
        return None

    async def open_port(self, sandbox_id: str, port: int, *, public: bool) -> Sandbox | None:
        """Opens a port to anyone, or takes that back, and tells the gateways; the record, or None: there is none."""
        while (before := await self._store.get(sandbox_id)) is not None:
            after = before.with_port(port, public=public, now_ms=self._clock.now_ms())
            if after is before or not before.state.counted:
                return before
            if await self._store.replace(after, before.version):
                self.hear(after)
                return after
        return None

    async def adopt(self, sandbox: Sandbox) -> bool:
        """Puts a sandbox on record that was found on the cluster, unless it is, and tells the gateways."""
        if not await self._store.restore(sandbox):
            return False
        self.hear(sandbox)
        return True

    def hear(self, sandbox: Sandbox) -> None:
        """Does here what a stored record means everywhere: routes, and who waits for it."""
        if sandbox.end is not None:
            self._board.withdraw(sandbox)
            self._settle(sandbox)
        elif sandbox.state is State.RUNNING:
            self._board.publish(sandbox)
            self._settle(sandbox)

    async def reread(self) -> Iterable[Sandbox]:
        """Hears everything that runs, and every end since the last look; those that run."""
        began_ms = self._clock.now_ms()
        running = await self._store.find(None, {}, {State.RUNNING})
        ended: Sequence[Sandbox] = await self._store.ended_since(self._ends_read_ms)
        for sandbox in (*running, *ended):
            self.hear(sandbox)
        for sandbox_id in [*self._unsettled]:
            await self._look(sandbox_id)
        # Only now: a look that breaks off is taken again from where the last one ended.
        self._ends_read_ms = began_ms - OVERLAP_MS
        return running

    async def _record(self, sandbox_id: str) -> Sandbox | None:
        sandbox = await self._store.get(sandbox_id)
        if sandbox is None and (held := self._held.get(sandbox_id)) is not None:
            await self._store.restore(held)
            sandbox = await self._store.get(sandbox_id)
        return sandbox

    async def _look(self, sandbox_id: str, *, expected: bool = False) -> None:
        sandbox = await self._store.get(sandbox_id)
        if sandbox is not None:
            self.hear(sandbox)
        elif expected and (future := self._unsettled.pop(sandbox_id, None)) is not None:
            future.set_exception(Problem("sandbox_not_found", f"there is no sandbox {sandbox_id} any more"))

    def _perform(self, sandbox: Sandbox, effects: frozenset[Effect]) -> None:
        if sandbox.id in self._held:
            self._held[sandbox.id] = sandbox
        if effects & {Effect.ROUTE, Effect.UNROUTE}:
            self.hear(sandbox)
        if Effect.UNROUTE in effects and sandbox.end is not None:
            self._metrics.ended(sandbox.end.cause)

    def _settle(self, sandbox: Sandbox) -> None:
        future = self._unsettled.pop(sandbox.id, None)
        if future is not None and not future.done():
            future.set_result(sandbox)
