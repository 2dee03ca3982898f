"""``CreateQueue``: every create passes it; a create without room waits here for its turn, until its deadline."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import count
from typing import Final, get_args

import structlog

from controlplane.clock import Clock
from controlplane.errors import Problem
from controlplane.lifecycle.record.recovering_store import RecoveringStore
from controlplane.lifecycle.record.transition import Effect, Transition
from controlplane.lifecycle.waiting.fair_queue import FairQueue
from controlplane.lifecycle.waiting.gates import quota
from controlplane.lifecycle.waiting.pace import LOOK_AGAIN_S, Pace
from controlplane.lifecycle.waiting.told import Position
from controlplane.lifecycle.waiting.waiting_create import (
    UNASKED,
    Answer,
    Attempt,
    Key,
    WaitingCreate,
    again,
    outcome,
    resolve,
)
from controlplane.model import Limits, Sandbox
from controlplane.store import Full, Store
from controlplane.telemetry import Room, Waited

# A caller that lost its connection keeps its place for so long, if it repeats the create with its key.
KEPT_MS: Final = 10_000
# Guess: each is an open connection of some 50 KiB.
MOST_WAITING: Final = 10_000
# The longest pause before a replica retries after quota was freed; see ``_pause_s``.
PAUSE_S: Final = 0.02

# The effects that free quota of an owner: of a sandbox, or of a start in flight.
FREES: Final = frozenset({Effect.FREE, Effect.SETTLE})
# The resource noted for an owner whose create the store did not answer.
_AWAY: Final = "store"


class CreateQueue:
    """Admits creates; those without room wait in a queue that is fair between owners. ``run`` is its loop.

    Args:
        store: counts what owners use, and knows which keys are taken.
        limits: returns the current limits of an owner.
        unwanted: called with an answer whose caller has disconnected.
        clock: the time of day.
        waited: called for every wait that is over, with what was missing last, how it ended, and how long it took (ms).
    """

    def __init__(
        self,
        store: Store | RecoveringStore,
        limits: Callable[[str], Limits],
        unwanted: Callable[[Answer], None],
        clock: Clock,
        waited: Callable[[Room, Waited, int], None] = lambda _room, _outcome, _ms: None,
    ) -> None:
        self._store = store
        self._limits = limits
        self._unwanted = unwanted
        self._clock = clock
        self._waited = waited
        self._queue: FairQueue[WaitingCreate] = FairQueue()
        self._paces: dict[str, Pace] = {}
        self._places: dict[Key, WaitingCreate] = {}
        self._kept: dict[Key, tuple[int, int]] = {}  # key -> its ticket, and until when it is kept (Unix ms)
        self._blocked: dict[str, str] = {}  # owners whose first create had no room, and which resource it lacked
        self._frees = 0
        self._tickets = count(1)
        self._look = asyncio.Event()
        self._waking: asyncio.TimerHandle | None = None
        self._log = structlog.get_logger("room")

    def __len__(self) -> int:
        return len(self._queue)

    async def enter(self, wish: Sandbox, attempt: Attempt) -> Answer:
        """Returns the answer of ``attempt`` as soon as it is not ``Full``.

        Cancel safe: the place is given up. The first attempt is cancelled with its caller; attempts of a queued create
        are not.

        Args:
            wish: the requested sandbox; it waits until there would be no time left to start it.
            attempt: tries the admission at the store once, with these limits; it owns what it begins.

        Raises:
            Problem: quota_exceeded (more than the owner may ever have, or the deadline has passed),
                capacity_unavailable (the deadline has passed: the installation is full), rate_limited (too many wait),
                conflict (the key waits here with other parameters), or what ``attempt`` raises.
        """
        place = self._places.get((wish.owner, wish.idempotency_key or ""))
        if place is None:
            ticket, limits = self._ticket(wish), self._limits(wish.owner)
            answer: Answer = UNASKED
            if not self._contended(wish.owner) or await self._taken(wish):
                answer = await attempt(limits)
            if not isinstance(answer, Full):
                return answer
            quota.refuse_for_good(wish.owner, quota.needs(wish.spec), limits.quota)
            place = self._join(WaitingCreate(ticket, wish, attempt, answer, self._clock.now_ms()))
        answer = await self._listen(place)
        return answer if place.wish is wish else again(wish, answer)

    def on(self, transition: Transition) -> None:
        """Retries the creates that may wait for quota which a sandbox has freed, at this replica or another one."""
        if not self._queue or not transition.effects & FREES:
            return
        self._frees, after = self._frees + 1, transition.after
        for owner, resource in [*self._blocked.items()]:
            if owner == after.owner or resource == quota.TOTAL:
                del self._blocked[owner]
        if not self._store.shared:
            self._look.set()
        elif self._waking is None:
            self._waking = asyncio.get_running_loop().call_later(self._pause_s(), self._wake)

    def changed(self) -> None:
        """Retries the creates of all owners: limits have changed."""
        self._frees += 1
        self._blocked.clear()
        self._look.set()

    def leave(self) -> None:
        """Ends all waits with ``draining``: the callers retry at another replica, behind those that wait there."""
        for owner in [*self._queue.owners()]:
            for ticket, place in [*self._queue.of(owner)]:
                self._queue.leave(owner, ticket)
                resolve(place, Problem("draining", "this control plane is stopping: ask again", retry_after_ms=200))

    def waiting(self, owner: str) -> Sequence[WaitingCreate]:
        """The owner's creates that wait at this replica, in order."""
        return [place for _, place in self._queue.of(owner)]

    def owners(self) -> Sequence[str]:
        """The owners whose creates wait at this replica."""
        return [*self._queue.owners()]

    def wait_ms(self, owner: str, position: int) -> int | None:
        """The estimated wait (ms) of the owner's create at this position, by the queue's pace; None: not known."""
        pace = self._paces.get(owner)
        return None if pace is None else pace.wait_ms(position, self._clock.now_ms())

    async def run(self) -> None:
        """Gives turns until cancelled."""
        while True:
            self._look.clear()
            try:
                await self._serve()
            except Problem as problem:
                self._log.warning("waiting creates not served, retrying", code=problem.code, detail=problem.detail)
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_AGAIN_S if self._queue else None):
                    await self._look.wait()
                    continue
            self._blocked.clear()

    def _contended(self, owner: str) -> bool:
        """Whether an earlier create may be waiting for the same room."""
        return bool(self._queue.waiting(owner)) or quota.TOTAL in self._blocked.values()

    async def _taken(self, wish: Sandbox) -> bool:
        """Whether a sandbox has its key already: then the create needs no room."""
        return (
            wish.idempotency_key is not None and await self._store.by_key(wish.owner, wish.idempotency_key) is not None
        )

    def _ticket(self, wish: Sandbox) -> int:
        kept = self._kept.pop((wish.owner, wish.idempotency_key or ""), None)
        return kept[0] if kept is not None and kept[1] > self._clock.now_ms() else next(self._tickets)

    def _join(self, place: WaitingCreate) -> WaitingCreate:
        owner = place.wish.owner
        if self._queue.waiting(owner) >= MOST_WAITING:
            raise quota.too_many_wait(owner, MOST_WAITING)
        # Two creates with one key at the same time: the second waits together with the first.
        if place.key is not None:
            if (first := self._places.get(place.key)) is not None:
                return first
            self._places[place.key] = place
        self._queue.join(owner, place.ticket, place)
        self._paces.setdefault(owner, Pace())
        # Quota may have been freed since it was refused, which ``on`` ignores while no create waits.
        self._blocked.pop(owner, None)
        self._look.set()
        return place

    async def _listen(self, place: WaitingCreate) -> Answer:
        left_s = max(0, place.until_ms - self._clock.now_ms()) / 1000
        place.callers += 1
        try:
            await asyncio.wait((place.answer,), timeout=left_s)
            if not place.answer.done():
                # Only an owner's first create is tried at the store: those behind it wait for the same resource.
                owner = place.wish.owner
                lacked = self._blocked.get(owner) or self._queue.first(owner).full.resource
                self._over(place, "refused", lacked)
                raise self._late(place)
            return place.answer.result()
        except asyncio.CancelledError:
            if place.callers == 1:
                self._left(place)
            raise
        finally:
            place.callers -= 1
            if not place.callers:
                self._forget(place)

    def _left(self, place: WaitingCreate) -> None:
        """Cleans up after the last caller of a place disconnected without its answer."""
        if place.answer.done():
            if place.answer.exception() is None:
                self._unwanted(place.answer.result())
        elif place.key is not None:
            self._keep(place.key, place.ticket)

    def _late(self, place: WaitingCreate) -> Problem:
        owner, now_ms = place.wish.owner, self._clock.now_ms()
        # Only an owner's first create is tried at the store: those behind it wait for the same resource.
        full = self._queue.first(owner).full
        if full is UNASKED:
            return Problem("upstream_timeout", f"{place.wish.id} was not asked for in time", retry_after_ms=1000)
        position = self._queue.position(owner, place.ticket)
        told = Position(owner, position, self._queue.waiting(owner), self.wait_ms(owner, position))
        return quota.waited_out(place.wish, full, told, now_ms - place.since_ms)

    def _keep(self, key: Key, ticket: int) -> None:
        now_ms = self._clock.now_ms()
        while self._kept and next(iter(self._kept.values()))[1] <= now_ms:
            del self._kept[next(iter(self._kept))]
        if len(self._kept) < MOST_WAITING:
            self._kept[key] = (ticket, now_ms + KEPT_MS)

    def _forget(self, place: WaitingCreate) -> None:
        if place.key is not None and self._places.get(place.key) is place:
            del self._places[place.key]
        owner = place.wish.owner
        if self._queue.leave(owner, place.ticket):
            # The next create of this owner may need less than this one did.
            self._blocked.pop(owner, None)
            self._look.set()
        if not self._queue.waiting(owner):
            self._paces.pop(owner, None)
            self._blocked.pop(owner, None)

    async def _serve(self) -> None:
        shares: dict[str, float] = {}
        while ready := [owner for owner in self._queue.owners() if owner not in self._blocked]:
            if len(ready) > 1:
                for owner in [one for one in ready if one not in shares]:
                    shares[owner] = quota.share(await self._store.usage(owner), self._limits(owner))
            chosen = self._queue.choose(lambda owner: shares.get(owner, 0.0), ready)
            if chosen is not None and await self._turn(self._queue.first(chosen)):
                shares.pop(chosen, None)

    async def _turn(self, place: WaitingCreate) -> bool:
        """Tries the admission of the create at this place; whether its wait is over."""
        owner = place.wish.owner
        limits, frees = self._limits(owner), self._frees
        try:
            quota.refuse_for_good(owner, quota.needs(place.wish.spec), limits.quota)
            came = await outcome(place.attempt, limits)
        except Problem as never:
            came = never
        if isinstance(came, Problem) and came.code == "upstream_timeout" and place.key is not None:
            # While the store does not answer the create keeps its place. If it was admitted, the retry finds it by key.
            self._blocked[owner] = _AWAY
            return False
        if isinstance(came, Full):
            place.full = came
            # Not when quota was freed during the call: that is published only once.
            if place.waits and frees == self._frees:
                self._blocked[owner] = came.resource
            return False
        if place.waits:
            self._queue.served(owner, place.ticket)
            self._paces[owner].turn(self._clock.now_ms())
            self._over(place, "refused" if isinstance(came, Problem) else "admitted", place.full.resource)
            resolve(place, came)
        elif not isinstance(came, Problem):
            self._unwanted(came)
        return True

    def _over(self, place: WaitingCreate, outcome: Waited, resource: str) -> None:
        self._waited(_room(resource), outcome, self._clock.now_ms() - place.since_ms)

    def _wake(self) -> None:
        self._waking = None
        self._look.set()

    def _pause_s(self) -> float:
        """Shorter the longer the first create here has waited, so that replicas retry roughly in order of waiting."""
        now_ms = self._clock.now_ms()
        firsts = (self._queue.first(owner).since_ms for owner in self._queue.owners())
        return PAUSE_S / (1 + max(0, now_ms - min(firsts, default=now_ms)) / 1000)


def _room(resource: str) -> Room:
    """What was missing, as a label; ``resource`` is empty where nothing was."""
    return next((room for room in get_args(Room) if room == resource), "turn")
