"""The only place where a record changes: compare and set around the pure table, then the transition is published.

Changes that other replicas have stored are published here too, so every subscriber follows all records by one stream.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, TypeVar

import structlog

from controlplane.clock import Clock
from controlplane.errors import Problem
from controlplane.lifecycle.record.recovering_store import RecoveringStore
from controlplane.lifecycle.record.retry import retried_while_away
from controlplane.lifecycle.record.timeline import noted
from controlplane.lifecycle.record.transition import Transition
from controlplane.lifecycle.record.unpersisted import UnpersistedFacts
from controlplane.model import UP, EndCause, Limits, Sandbox, State
from controlplane.model.states import NO_CHANGE, Change, Event, apply
from controlplane.store import Admission, Admitted, Claim, Claimed, Fence, Store, UnreadableRecordError

PLATFORM: Final = "control plane"
# How far a new look goes back behind the last one: replicas' clocks may differ by so much.
OVERLAP_MS: Final = 60_000
# How many records are put back side by side into a store that has forgotten them.
TOGETHER: Final = 64

Subscriber = Callable[[Transition], None]
S = TypeVar("S")
T = TypeVar("T")


class Ledger:
    """Applies changes to records and publishes each as a ``Transition``."""

    def __init__(self, store: RecoveringStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._held: dict[str, Sandbox] = {}
        self._facts = UnpersistedFacts(clock)
        self._contested: set[str] = set()
        self._doubted: set[str] = set()  # a change of theirs may be stored without having been published here
        self._claims: dict[str, Sandbox] = {}  # made here and not published yet
        self._subscribers: list[Subscriber] = []
        self._ends_read_ms = 0
        self._log = structlog.get_logger("ledger")

    def subscribe(self, subscriber: Subscriber) -> None:
        """Calls ``subscriber`` with every transition that is made or heard of here, perhaps twice; it must not wait.

        An exception of a subscriber is logged, with its stack: the change is stored by then, and others follow it too.
        """
        self._subscribers.append(subscriber)

    # -- changes ------------------------------------------------------------------------------------------------

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
            sandbox_id: of which sandbox.
            event: what has happened.
            change: what it does to the record besides the state.
            known: the record, if the caller has just read it: saves a read.
            once: only if the record is still ``known``: the caller decided by what that says.
        """
        applied = partial(self._applied, event=event, change=change)
        stored, _ = await self._store_change(sandbox_id, applied, known, once=once)
        return stored

    async def end(
        self,
        sandbox_id: str,
        problem: Problem,
        by: str,
        event: Event = Event.END,
        known: Sandbox | None = None,
        *,
        once: bool = False,
    ) -> bool:
        """Ends a sandbox with this cause, unless its end has begun: the first cause stays. Whether it was this one.

        Quota is free and the gateways know when this returns; the cluster is asked in the background.

        Args:
            sandbox_id: of which sandbox.
            problem: why.
            by: what ends it: an owner's name, or a part of the platform.
            event: ``END``, or ``FAIL`` or ``RETIRE``, which change nothing once it runs or is claimed.
            known: the record, if the caller has just read it: saves a read.
            once: only if the record is still ``known``.
        """
        cause = EndCause.of(problem, self._clock.now_ms(), by)
        known = known if once else self._held.get(sandbox_id, known)
        return await self.take(sandbox_id, event, Change(end=cause), known, once=once) is not None

    async def end_with_retries(self, sandbox_id: str, problem: Problem, by: str, event: Event = Event.END) -> None:
        """As ``end``, also when the store is away for a moment; never raises a ``Problem``.

        An end that is not stored then is logged, and a later round of maintenance ends the sandbox.

        Args:
            sandbox_id: which sandbox.
            problem: the cause of the end.
            by: what ends it, for the record.
            event: of the table of states.
        """
        try:
            await retried_while_away(lambda: self.end(sandbox_id, problem, by, event))
        except Problem as away:
            # Its deadline is on record, and cluster and record are compared now and then: a later round ends it.
            self._log.error(
                "end not stored, a later round ends it", sandbox_id=sandbox_id, code=problem.code, detail=away.detail
            )

    async def change(
        self, sandbox_id: str, change: Callable[[Sandbox], Sandbox], known: Sandbox | None = None
    ) -> Sandbox | None:
        """Stores what a pure function makes of the record; the record from then on, or None: there is none.

        Args:
            sandbox_id: of which sandbox.
            change: the function.
            known: the whole record as it was read or heard of last: saves a read, where it is still that.
        """
        stored, read = await self._store_change(sandbox_id, change, known)
        return stored or read

    async def admit(self, wish: Sandbox, limits: Limits, fence: Fence | None = None) -> Admission:
        """As ``Store.admit``; the transition to an admitted record is published before this returns."""
        admission = await self._store.admit(wish, limits, fence)
        if isinstance(admission, Admitted):
            # A call that was retried may find a record that has gone on since.
            self._publish(None, admission.sandbox, here=admission.sandbox == wish)
        return admission

    async def claim(self, wish: Sandbox, limits: Limits) -> Claim | None:
        """As ``Store.claim``; until ``claim_written``, only replicas know its owner if the store is lost.

        It is published a moment later, when its creator has the answer: it has had its route since it was warm.
        """
        claim = await self._store.claim(wish, limits)
        if isinstance(claim, Claimed):
            if self._store.shared:
                self._facts.hold(claim.sandbox)
            self._claims[claim.sandbox.id] = claim.sandbox
            asyncio.get_running_loop().call_soon(self._publish_claim, claim.sandbox.id)
        return claim

    def claim_written(self, sandbox_id: str) -> None:
        """Says that the cluster knows the owner of this sandbox."""
        self._facts.persisted(sandbox_id)

    async def find_claim(self, wish: Sandbox) -> Sandbox | None:
        """What the claim of ``wish`` got when its answer was lost. Cost: a read of all that its owner has running.

        With a key: the sandbox that has taken it, which may be another create's.
        """
        if wish.idempotency_key is not None:
            return await self._store.by_key(wish.owner, wish.idempotency_key)
        running = await self._store.find(wish.owner, {}, {State.RUNNING})
        return next((one for one in running if one.claim_id == wish.id), None)

    # -- what is known from elsewhere ---------------------------------------------------------------------------

    def publish(self, sandbox: Sandbox) -> None:
        """Publishes a record as it was read, or as another replica has stored it."""
        self._publish(None, sandbox, here=False)

    async def refresh(self, sandbox_id: str) -> Sandbox | None:
        """Reads a record and publishes it; None: there is none."""
        sandbox = await self._store.get(sandbox_id)
        if sandbox is not None:
            self.publish(sandbox)
        return sandbox

    async def reread(self) -> None:
        """Publishes everything that is up, and every end since the last time."""
        began_ms = self._clock.now_ms()
        for sandbox in await self._store.find(None, {}, UP):
            self.publish(sandbox)
        for sandbox in await self._store.ended_since(self._ends_read_ms):
            self.publish(sandbox)
        # Only now: a reread that breaks off is repeated from where the last one ended.
        self._ends_read_ms = began_ms - OVERLAP_MS

    async def adopt(self, sandbox: Sandbox) -> bool:
        """Puts a sandbox on record that was found on the cluster, unless it is on record; tells whether it did."""
        sandbox = noted(sandbox, self._clock.now_ms(), "adopt")
        if not await self._store.restore(sandbox):
            return False
        self.publish(sandbox)
        return True

    # -- what a lost store has forgotten ------------------------------------------------------------------------

    def hold(self, sandbox: Sandbox) -> None:
        """Keeps the newest record of a start that this replica runs, until ``release``."""
        self._held[sandbox.id] = sandbox

    def release(self, sandbox_id: str) -> None:
        """Ends ``hold``."""
        self._held.pop(sandbox_id, None)

    def held(self, sandbox_id: str) -> Sandbox | None:
        """The record of a start that this replica runs, as it last stored it; a change from elsewhere may be newer."""
        return self._held.get(sandbox_id)

    async def put_back(self, store: Store) -> None:
        """Puts on record again, in a store that has forgotten it, what this replica knows and the cluster does not."""
        known = {**self._held, **self._facts.records}
        missing = await _side_by_side(store.restore, [*known.values()])
        there = {sandbox_id for sandbox_id, was in zip(known, missing, strict=True) if not was}
        self._contested |= there & self._facts.records.keys()

    async def correct(self) -> None:
        """Sees to it that no record says less than this replica knows, and that it knows what it has stored."""
        self._facts.forget()
        await _side_by_side(self._look_again, [*self._doubted])
        self._contested &= self._facts.records.keys()
        await _side_by_side(self._correct, [self._facts.records[sandbox_id] for sandbox_id in self._contested])

    def contradicts(self, sandbox: Sandbox) -> bool:
        """Whether this record is from a store that was rebuilt without what is known here: ``correct`` mends it."""
        return self._facts.outweighs(sandbox)

    def _applied(self, before: Sandbox, event: Event, change: Change) -> Sandbox:
        return apply(before, event, change, self._clock.now_ms())

    async def _store_change(
        self,
        sandbox_id: str,
        change: Callable[[Sandbox], Sandbox],
        known: Sandbox | None = None,
        *,
        once: bool = False,
    ) -> tuple[Sandbox | None, Sandbox | None]:
        """What was stored, if the change changes anything; and the last record that was read."""
        before = known or await self._record(sandbox_id)
        while before is not None:
            after = change(before)
            if after is before:
                break
            if await self._replaced(after, before.version):
                if sandbox_id in self._held:
                    self._held[sandbox_id] = after
                self._publish(before, after, here=True)
                return after, before
            if once:
                break
            before = await self._record(sandbox_id)
        return None, before

    async def _replaced(self, after: Sandbox, expected_version: int) -> bool:
        try:
            return await self._store.replace(after, expected_version)
        except BaseException:
            # It may be stored all the same: the answer was lost, or the caller has gone. What tells the other replicas
            # of it is a message of this one's own, which it skips.
            self._doubted.add(after.id)
            raise

    async def _look_again(self, sandbox_id: str) -> None:
        # A record that cannot be read is left alone, as everywhere.
        with suppress(UnreadableRecordError):
            await self._record(sandbox_id)
        self._doubted.discard(sandbox_id)

    async def _record(self, sandbox_id: str) -> Sandbox | None:
        sandbox = await self._store.get(sandbox_id)
        if sandbox is not None and sandbox_id in self._doubted:
            self._doubted.discard(sandbox_id)
            self.publish(sandbox)
        known = self._facts.records.get(sandbox_id) or self._held.get(sandbox_id)
        if sandbox is None and known is not None:
            await self._store.restore(known)
            sandbox = await self._store.get(sandbox_id)
        return sandbox

    async def _correct(self, known: Sandbox) -> None:
        """A rebuild has it as the pool's or as alive, or a replica that had not heard has put back what it held."""
        # A record that cannot be read is left alone, as everywhere.
        with suppress(UnreadableRecordError):
            await self._put_right(known)
        self._contested.discard(known.id)

    async def _put_right(self, known: Sandbox) -> None:
        while not await self._store.restore(known):
            on_record = await self._store.get(known.id)
            if on_record is None:
                return
            if not self._facts.outweighs(on_record):
                self.publish(on_record)
                return
            after = self._facts.corrected(on_record)
            if await self._store.replace(after, on_record.version):
                self.publish(after)
                return

    def _publish_claim(self, sandbox_id: str) -> None:
        # Not when its end was published first.
        if (claimed := self._claims.pop(sandbox_id, None)) is not None:
            self._publish(None, claimed, here=True)

    def _publish(self, before: Sandbox | None, after: Sandbox, *, here: bool) -> None:
        if after.end is not None:
            self._claims.pop(after.id, None)
        if self._facts.outweighs(after):
            # From a store that was rebuilt without what is known here; ``correct`` says so soon.
            self._contested.add(after.id)
            return
        if self._store.shared:
            self._facts.observe(after)
        transition = Transition.of(before, after, here=here)
        for subscriber in self._subscribers:
            # The change is on record: a defect in one of those that follow it is neither its caller's nor the others'.
            try:
                subscriber(transition)
            except Exception:
                self._log.exception(
                    "what follows from a transition failed", sandbox_id=after.id, follower=_name(subscriber)
                )


def _name(subscriber: Subscriber) -> str:
    return getattr(subscriber, "__qualname__", repr(subscriber))


async def _side_by_side(call: Callable[[S], Awaitable[T]], of: Sequence[S]) -> list[T]:
    """What the call answers for each, in order, some at a time; the first failure is raised once those are over."""
    answers: list[T] = []
    for at in range(0, len(of), TOGETHER):
        calls = map(call, of[at : at + TOGETHER])
        for answer in await asyncio.gather(*calls, return_exceptions=True):
            if isinstance(answer, BaseException):
                raise answer
            answers.append(answer)
    return answers
