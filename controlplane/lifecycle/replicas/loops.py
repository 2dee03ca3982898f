"""The loops of a replica: follow other replicas' changes, send heartbeats, do work that takes turns by lease."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final, Protocol, get_args

import structlog

from controlplane.clock import Clock
from controlplane.errors import Problem
from controlplane.lifecycle.record.recovering_store import RecoveringStore
from controlplane.model import Sandbox
from controlplane.store import Changed, Due, Resync, StoreLostError
from controlplane.telemetry import Metrics, Role

HERE_EVERY_S: Final = 2.0
# Three heartbeats: a replica that sends none for so long counts as dead, and its starts are taken over.
HERE_FOR_MS: Final = 6_000
TELL_EVERY_S: Final = 1.0
ORPHANS_EVERY_S: Final = 60.0
# A precaution: no cause of a wrong count is known, but one would refuse every create, or admit too many, until noticed.
RECOUNT_EVERY_S: Final = 5.0
UNCONFIRMED_MS: Final = 30_000
# Retry interval after a failed read of all records.
REREAD_AGAIN_S: Final = 1.0
# Guess: a round of health probes on a node with a thousand sandboxes of which none answers.
TURN_WITHIN_S: Final = 600.0
# What a sweep leaves undone is due again at the next sweep, perhaps of another replica.
SWEEP_WITHIN_S: Final = 60.0


class Work(Protocol):
    """The work that the loops call; ``Upkeep`` does it."""

    async def reread(self) -> None:
        """Reads all records that are up, and all recent ends: changes may have been missed."""
        ...

    def publish(self, sandbox: Sandbox) -> None:
        """Publishes a record that another replica has stored."""
        ...

    def wake_starts(self, placement_key: str | None = None) -> None:
        """Wakes the starts that wait for a slot: there may be one for this placement key; None: for any."""
        ...

    def restart_quiet_time(self) -> None:
        """Restarts the time that counts towards idle timeouts and leases: without the store clients could not renew."""
        ...

    async def handle_due(self, due: Due) -> None:
        """Ends, reclaims and takes over what is due."""
        ...

    async def keep(self) -> None:
        """Ensures that the store is intact and has what only this replica knows."""
        ...

    async def orphans(self) -> None:
        """Compares the cluster with the records."""
        ...

    async def probe(self) -> None:
        """Probes the health of every running sandbox."""
        ...

    async def recount(self) -> None:
        """Compares the counted use with the records."""
        ...


class ReplicaLoops:
    """The loops; each runs until it is cancelled, also while the store does not answer.

    Args:
        replica: this process's name in the store, which it writes on the records of its starts.
    """

    def __init__(self, store: RecoveringStore, clock: Clock, metrics: Metrics, work: Work, replica: str) -> None:
        self._store = store
        self._clock = clock
        self._metrics = metrics
        self._work = work
        self._replica = replica
        self._held_leases: set[str] = set()  # the leases of periodic work that this replica holds
        self._log = structlog.get_logger("replicas")

    @property
    def roles(self) -> frozenset[Role]:
        """The work that this replica does for all at present."""
        names = {name.replace(" ", "_") for name in self._held_leases}
        return frozenset(role for role in get_args(Role) if role in names)

    async def follow(self) -> None:
        """Follows what other replicas store."""
        async for news in self._store.feed():
            if isinstance(news, Resync):
                self._metrics.resynced()
                await self._reread()
                self._work.wake_starts()
            elif isinstance(news, Changed):
                self._metrics.lagged(self._clock.now_ms() - news.at_ms)
                self._work.publish(news.sandbox)
            else:
                self._work.wake_starts(news.placement_key)

    async def tend(self) -> None:
        """Sends heartbeats; keeps this replica's facts in the store and sweeps, in tasks that cannot delay them."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._repeat("here", self._here), name="here")
            group.create_task(self._repeat("keep", self._work.keep), name="keep")
            sweep = self._in_turn("sweep", HERE_EVERY_S, self._sweep, SWEEP_WITHIN_S)
            group.create_task(sweep, name="sweep")

    async def watch_orphans(self) -> None:
        """Compares cluster and records, at one replica at a time."""
        await self._in_turn("orphans", ORPHANS_EVERY_S, self._work.orphans)

    async def recount(self) -> None:
        """Compares the counted use with the records, at one replica at a time."""
        await self._in_turn("recount", RECOUNT_EVERY_S, self._work.recount)

    async def probe(self, every_ms: int) -> None:
        """Probes the health of running sandboxes, at one replica at a time."""
        await self._in_turn("prober", every_ms / 1000, self._work.probe)

    async def periodic(self, name: str, every_s: float, work: Callable[[], Awaitable[None]]) -> None:
        """Does some work that is not ``Work``'s, at one replica at a time; ``name`` is that of its lease."""
        await self._in_turn(name, every_s, work)

    async def lead(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        """Does work that goes on, at one replica at a time; it ends where the lease is lost, and is begun again.

        Args:
            name: of its lease.
            work: begins it; it is cancelled.
        """

        async def turn() -> None:
            async with self.alone(name) as mine:
                if mine:
                    await self._while_held(name, work)

        while True:
            await self._survive(name, turn)
            await asyncio.sleep(HERE_FOR_MS / 1000)

    async def tell(self, turn: Callable[[], Awaitable[None]]) -> None:
        """Has a replica tell the others what they cannot know, every second."""
        while True:
            await self._survive("tell", turn)
            await asyncio.sleep(TELL_EVERY_S)

    @asynccontextmanager
    async def alone(self, name: str) -> AsyncIterator[bool]:
        """Whether no other replica is at some work; if so, none begins it until the block ends, or this replica dies.

        Raises:
            Problem: the store does not answer.
            StoreLostError: it has lost what it had.
        """
        mine = await self._mine(name)
        try:
            yield mine
        finally:
            if mine:
                self._held_leases.discard(name)
                await self._store.lease(name, self._replica, 0)

    async def go(self) -> None:
        """Gives this replica's lease back, so that others take its starts over at once."""
        try:
            await self._store.lease(f"replica:{self._replica}", self._replica, 0)
        except Problem as problem:
            self._log.warning(
                "replica lease not given back, it has to expire", code=problem.code, detail=problem.detail
            )

    async def _reread(self) -> None:
        # Until it succeeds: changes that were stored in the gap are not published again, and creates wait for them.
        while True:
            if await self._survive("resync", self._work.reread):
                return
            await asyncio.sleep(REREAD_AGAIN_S)

    async def _repeat(self, what: str, call: Callable[[], Awaitable[None]]) -> None:
        while True:
            if not await self._survive(what, call):
                self._work.restart_quiet_time()
            await asyncio.sleep(HERE_EVERY_S)

    async def _here(self) -> None:
        await self._store.lease(f"replica:{self._replica}", self._replica, HERE_FOR_MS)
        # Renewed here and not with the work, whose interval is longer: so these leases are short, and another replica
        # takes the work over soon after this one dies.
        for name in [*self._held_leases]:
            # A lease that was given back meanwhile must not be taken again without doing its work.
            if name in self._held_leases and not await self._store.lease(name, self._replica, HERE_FOR_MS):
                self._held_leases.discard(name)

    async def _sweep(self) -> None:
        now_ms = self._clock.now_ms()
        await self._work.handle_due(await self._store.due(now_ms, now_ms - UNCONFIRMED_MS))

    async def _in_turn(
        self, name: str, every_s: float, work: Callable[[], Awaitable[None]], within_s: float = TURN_WITHIN_S
    ) -> None:
        looks_s = HERE_FOR_MS / 1000

        async def turn() -> None:
            if await self._mine(name) and not await _done(work, within_s):
                # The lease is renewed beside the work: without this, this replica would hold it while the work hangs.
                self._held_leases.discard(name)
                self._log.error("periodic work hangs, it is cancelled", turn=name, within_s=within_s)
                await self._store.lease(name, self._replica, 0)
                await asyncio.sleep(looks_s)

        while True:
            await self._survive(name, turn)
            await asyncio.sleep(every_s if name in self._held_leases else min(every_s, looks_s))

    async def _while_held(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        working = asyncio.create_task(_awaited(work), name=name)
        try:
            while name in self._held_leases and not working.done():
                await asyncio.wait({working}, timeout=HERE_EVERY_S)
        finally:
            working.cancel()
            await asyncio.wait({working})
        if not working.cancelled():
            working.result()

    async def _mine(self, name: str) -> bool:
        """Takes or renews the lease of some periodic work; whether this replica holds it."""
        mine = await self._store.lease(name, self._replica, HERE_FOR_MS)
        (self._held_leases.add if mine else self._held_leases.discard)(name)
        return mine

    async def _survive(self, what: str, call: Callable[[], Awaitable[None]]) -> bool:
        """Makes the call; whether it succeeded. A failure is logged."""
        try:
            await call()
        except (Problem, StoreLostError) as problem:
            self._log.warning("periodic work failed, retrying", what=what, detail=str(problem))
        except Exception:
            # A loop that ends takes the control plane with it; its next round may succeed.
            self._log.exception("periodic work failed, retrying", what=what)
        else:
            return True
        # A task group that is cancelled while one of its tasks fails raises only that failure: without this, the loop
        # would not end.
        if (task := asyncio.current_task()) is not None and task.cancelling():
            raise asyncio.CancelledError
        return False


async def _awaited(work: Callable[[], Awaitable[None]]) -> None:
    await work()


async def _done(work: Callable[[], Awaitable[None]], within_s: float) -> bool:
    """Does the work; False: it was cancelled, since it took longer than ``within_s``."""
    try:
        async with asyncio.timeout(within_s) as limit:
            await work()
    except TimeoutError:
        if not limit.expired():
            raise
    return not limit.expired()
