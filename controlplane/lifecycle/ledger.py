"""The only place where a record changes: compare and set around the pure table, then the effects, once each.

What another replica has changed is heard here too: it has the same effects on routes and on who waits.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final, TypeVar

from controlplane.clock import Clock
from controlplane.errors import Problem
from controlplane.lifecycle import callers
from controlplane.lifecycle.keeper import Keeper
from controlplane.lifecycle.recent import Recent
from controlplane.lifecycle.routes import RouteBoard
from controlplane.lifecycle.states import NO_CHANGE, Change, Effect, Event, apply
from controlplane.lifecycle.timeline import noted, word_of
from controlplane.model import UP, EndCause, Lease, Limits, Sandbox, State
from controlplane.store import Claim, Claimed, Store, UnreadableRecordError
from controlplane.telemetry import Metrics

# How far a new look goes back behind the last one: replicas' clocks may differ by so much.
OVERLAP_MS: Final = 60_000
# How many records are put back side by side into a store that has forgotten them.
TOGETHER: Final = 64

# Before and after a change; before is None where only the outcome is known: claimed, adopted, heard from elsewhere.
Listener = Callable[[Sandbox | None, Sandbox], None]
T = TypeVar("T")


class Ledger:
    """Applies events to records, tells the gateways, and wakes who waits for a start to settle."""

    def __init__(self, store: Keeper, board: RouteBoard, metrics: Metrics, clock: Clock) -> None:
        self._store = store
        self._board = board
        self._metrics = metrics
        self._clock = clock
        self._unsettled: dict[str, asyncio.Future[Sandbox]] = {}
        self._held: dict[str, Sandbox] = {}
        self._recent = Recent(clock)
        self._contested: set[str] = set()
        self._awaited: set[str] = set()  # admitted, and somebody waits here until the start is over
        self._doubtful: set[str] = set()  # of these, started elsewhere when the store was lost
        self._listeners: list[Listener] = []
        self._leaving: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._ends_read_ms = 0

    def listen(self, listener: Listener) -> None:
        """Tells ``listener`` of every change that is made or heard of here, perhaps twice; it must not wait."""
        self._listeners.append(listener)

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
        self._awaited.add(sandbox.id)
        future.add_done_callback(lambda _: self._awaited.discard(sandbox.id))
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
        """Puts on record again, in a store that has forgotten it, what this replica knows and the cluster does not."""
        known = {**self._held, **self._recent.records}
        missing = await _side_by_side(store.restore, [*known.values()])
        there = {sandbox_id for sandbox_id, was in zip(known, missing, strict=True) if not was}
        self._contested |= there & self._recent.records.keys()
        self._doubtful |= self._awaited - self._held.keys()

    async def insist(self) -> None:
        """Sees to it that nothing on record says less than this replica knows; nobody waits for what is forgotten."""
        for sandbox_id in [*self._doubtful]:
            # Only the replica that started it could have put it back, and that one may be gone.
            await self._look(sandbox_id, expected=True)
            self._doubtful.discard(sandbox_id)
        self._recent.forget()
        self._contested &= self._recent.records.keys()
        await _side_by_side(self._insist, [self._recent.records[sandbox_id] for sandbox_id in self._contested])

    def doubts(self, sandbox: Sandbox) -> bool:
        """Whether this record comes from a store that was rebuilt without what is known here: ``insist`` mends it."""
        return self._recent.outweighs(sandbox)

    async def claim(self, wish: Sandbox, limits: Limits) -> Claim | None:
        """As ``Store.claim``; until ``written``, only replicas can say whose it is if the store is lost.

        It is heard of here a moment later, when its creator has his answer: it has had its route since it was warm.
        """
        claim = await self._store.claim(wish, limits)
        if isinstance(claim, Claimed):
            if self._store.shared:
                self._recent.hold(claim.sandbox)
            asyncio.get_running_loop().call_soon(self._hear_claim, claim.sandbox)
        return claim

    def _hear_claim(self, claimed: Sandbox) -> None:
        # Its end may have been heard of first.
        if not self._board.ended(claimed.id):
            self.hear(claimed)

    def written(self, sandbox_id: str) -> None:
        """Says that the cluster knows whose this sandbox is."""
        self._recent.told(sandbox_id)

    async def find_claim(self, wish: Sandbox) -> Sandbox | None:
        """What the claim of ``wish`` got whose answer was lost. Cost: one look at all that its owner has running.

        Of one with a key: what has taken that, which may be another create's.
        """
        if wish.idempotency_key is not None:
            return await self._store.by_key(wish.owner, wish.idempotency_key)
        running = await self._store.find(wish.owner, {}, {State.RUNNING})
        return next((one for one in running if one.claim_id == wish.id), None)

    async def free_key(self, sandbox_id: str) -> None:
        """Lets another sandbox take the key of this one, also when it has ended."""
        while (before := await self._store.get(sandbox_id)) is not None and before.idempotency_key is not None:
            after = replace(before, idempotency_key=None, version=before.version + 1)
            if await self._store.replace(after, before.version):
                return

    async def take(
        self,
        sandbox_id: str,
        event: Event,
        change: Change = NO_CHANGE,
        known: Sandbox | None = None,
        *,
        once: bool = False,
    ) -> Sandbox | None:
        """Applies an event; the new record, or None when the event changes nothing (any more).

        Args:
            sandbox_id: whose.
            event: what has happened.
            change: what it does to the record besides the state.
            known: the record, if the caller has just had it: saves a question.
            once: only if the record is still ``known``: it was judged by what that says.
        """
        before = known or await self._record(sandbox_id)
        while before is not None:
            applied = apply(before, event, change)
            if applied is None:
                return None
            after, effects = applied
            after = noted(after, self._clock.now_ms(), word_of(after, event))
            if await self._store.replace(after, before.version):
                self._perform(before, after, effects)
                return after
            before = None if once else await self._record(sandbox_id)
        return None

    async def end(
        self, sandbox_id: str, cause: EndCause, event: Event, known: Sandbox | None = None, *, once: bool = False
    ) -> Sandbox | None:
        """Begins the end by ``END`` or ``FAIL``; None when it has begun already: the first cause stays."""
        known = known if once else self._held.get(sandbox_id, known)
        return await self.take(sandbox_id, event, Change(end=cause), known, once=once)

    async def extend(self, sandbox_id: str, expires_at_ms: int) -> Sandbox | None:
        """Moves the expiry later, never earlier; the record, or None when there is none."""
        while (before := await self._store.get(sandbox_id)) is not None:
            if before.expires_at_ms >= expires_at_ms or not before.state.counted:
                return before
            after = replace(before, expires_at_ms=expires_at_ms, version=before.version + 1)
            after = noted(after, self._clock.now_ms(), "extend")
            if await self._store.replace(after, before.version):
                self.hear(after)
                return after
        return None

    async def give_lease(self, sandbox_id: str, lease: Lease | None) -> Sandbox | None:
        """Gives a live sandbox to a lease, or takes it off its own (None); the record, or None: there is none."""
        while (before := await self._store.get(sandbox_id)) is not None:
            if before.spec.lease == lease or not before.state.counted:
                return before
            spec = before.spec.model_copy(update={"lease": lease})
            after = replace(before, spec=spec, version=before.version + 1)
            after = noted(after, self._clock.now_ms(), "detach" if lease is None else "lease")
            if await self._store.replace(after, before.version):
                self.hear(after)
                return after
        return None

    async def add_caller(self, sandbox_id: str, caller: str) -> Sandbox | None:
        """Lets this try of a create want a sandbox too; the record, which may have ended, or None: there is none."""
        return await self._change(sandbox_id, lambda before: callers.joined(before, caller))

    async def drop_caller(self, sandbox_id: str, caller: str) -> Sandbox | None:
        """Takes that back: the try has gone before it was given the sandbox; the record, or None: there is none."""
        return await self._change(sandbox_id, lambda before: callers.left(before, caller, self._clock.now_ms()))

    async def drop_call(self, sandbox_id: str, call_id: str) -> Sandbox | None:
        """Takes back what all tries of a call wanted; the record, or None: there is none."""
        return await self._change(sandbox_id, lambda before: callers.withdrawn(before, call_id, self._clock.now_ms()))

    async def open_port(self, sandbox_id: str, port: int, *, public: bool) -> Sandbox | None:
        """Opens a port to anyone, or takes that back, and tells the gateways; the record, or None: there is none."""
        while (before := await self._store.get(sandbox_id)) is not None:
            after = before.with_port(port, public=public, now_ms=self._clock.now_ms())
            if after is before or not before.state.counted:
                return before
            after = noted(after, self._clock.now_ms(), "port")
            if await self._store.replace(after, before.version):
                self.hear(after)
                return after
        return None

    async def adopt(self, sandbox: Sandbox) -> bool:
        """Puts a sandbox on record that was found on the cluster, unless it is, and tells the gateways."""
        sandbox = noted(sandbox, self._clock.now_ms(), "adopt")
        if not await self._store.restore(sandbox):
            return False
        self.hear(sandbox)
        return True

    def hear(self, sandbox: Sandbox) -> None:
        """Does here what a stored record means everywhere: routes, who waits for it, who listens."""
        self._tell(None, sandbox)

    async def reread(self) -> Iterable[Sandbox]:
        """Hears everything that is up, and every end since the last look; what is up."""
        began_ms = self._clock.now_ms()
        running = await self._store.find(None, {}, UP)
        ended: Sequence[Sandbox] = await self._store.ended_since(self._ends_read_ms)
        for sandbox in (*running, *ended):
            self.hear(sandbox)
        for sandbox_id in [*self._unsettled]:
            await self._look(sandbox_id)
        # Only now: a look that breaks off is taken again from where the last one ended.
        self._ends_read_ms = began_ms - OVERLAP_MS
        return running

    async def _change(self, sandbox_id: str, change: Callable[[Sandbox], Sandbox]) -> Sandbox | None:
        while (before := await self._store.get(sandbox_id)) is not None:
            after = before if before.end is not None else change(before)
            if after is before:
                return before
            if await self._store.replace(after, before.version):
                self.hear(after)
                return after
        return None

    async def _record(self, sandbox_id: str) -> Sandbox | None:
        sandbox = await self._store.get(sandbox_id)
        known = self._recent.records.get(sandbox_id) or self._held.get(sandbox_id)
        if sandbox is None and known is not None:
            await self._store.restore(known)
            sandbox = await self._store.get(sandbox_id)
        return sandbox

    async def _look(self, sandbox_id: str, *, expected: bool = False) -> None:
        sandbox = await self._store.get(sandbox_id)
        if sandbox is not None:
            self.hear(sandbox)
        elif expected and (future := self._unsettled.pop(sandbox_id, None)) is not None:
            future.set_exception(Problem("sandbox_not_found", f"there is no sandbox {sandbox_id} any more"))

    async def _insist(self, known: Sandbox) -> None:
        """A rebuild has it as the pool's, or as alive, or a replica that had not heard has put back what it held."""
        # One that cannot be read is left alone, as everywhere.
        with suppress(UnreadableRecordError):
            await self._put_right(known)
        self._contested.discard(known.id)

    async def _put_right(self, known: Sandbox) -> None:
        while not await self._store.restore(known):
            on_record = await self._store.get(known.id)
            if on_record is None:
                return
            if not self._recent.outweighs(on_record):
                self.hear(on_record)
                return
            after = self._recent.corrected(on_record)
            if await self._store.replace(after, on_record.version):
                self.hear(after)
                return

    def _perform(self, before: Sandbox, after: Sandbox, effects: frozenset[Effect]) -> None:
        if after.id in self._held:
            self._held[after.id] = after
        self._tell(before, after)
        if Effect.UNROUTE in effects and after.end is not None:
            self._metrics.ended(after.end.cause)

    def _tell(self, before: Sandbox | None, after: Sandbox) -> None:
        if self._recent.outweighs(after):
            # From a store that was rebuilt without what is known here; ``insist`` says so soon.
            self._contested.add(after.id)
            return
        if self._store.shared:
            self._recent.hear(after)
        if after.end is not None:
            self._board.withdraw(after)
            self._settle(after)
        elif after.state in UP:
            self._board.publish(after)
            self._settle(after)
        for listener in self._listeners:
            listener(before, after)

    def _settle(self, sandbox: Sandbox) -> None:
        future = self._unsettled.pop(sandbox.id, None)
        if future is not None and not future.done():
            future.set_result(sandbox)


async def _side_by_side(call: Callable[[Sandbox], Awaitable[T]], sandboxes: Sequence[Sandbox]) -> list[T]:
    """What the call answers for each, in order, some at a time; the first failure is raised once those are over."""
    answers: list[T] = []
    for at in range(0, len(sandboxes), TOGETHER):
        calls = map(call, sandboxes[at : at + TOGETHER])
        for answer in await asyncio.gather(*calls, return_exceptions=True):
            if isinstance(answer, BaseException):
                raise answer
            answers.append(answer)
    return answers
