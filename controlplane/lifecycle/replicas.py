"""What a replica does because there are others: hears of their changes, says that it is here, does what they left."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

import structlog

from controlplane.clock import Clock
from controlplane.errors import Problem
from controlplane.lifecycle.keeper import Keeper
from controlplane.model import Sandbox
from controlplane.store import Changed, Due, Resync, StoreLostError
from controlplane.telemetry import Metrics

HERE_EVERY_S: Final = 2.0
# Three tries of saying so: a replica that is silent for this long has gone, and its starts are taken on.
HERE_FOR_MS: Final = 6_000
ORPHANS_EVERY_S: Final = 60.0
# Nothing is known that makes it necessary: what is wrong here lets nobody in, or everybody, until somebody looks.
RECOUNT_EVERY_S: Final = 5.0
UNCONFIRMED_MS: Final = 30_000
# After a look at everything that failed.
REREAD_AGAIN_S: Final = 1.0
# Guess: a round of proofs of life on a node with a thousand sandboxes of which none answers.
TURN_WITHIN_S: Final = 600.0
# What it leaves undone is due again at the next replica's turn.
SWEEP_WITHIN_S: Final = 60.0


class Work(Protocol):
    """What has to be done; ``Upkeep`` does it."""

    async def reread(self) -> None:
        """Looks at everything on record."""
        ...

    def hear(self, sandbox: Sandbox) -> None:
        """Another replica has stored this."""
        ...

    def wake(self) -> None:
        """A start slot is free."""
        ...

    def doubt(self) -> None:
        """The store was away: nobody could say that he is still there."""
        ...

    async def settle(self, due: Due) -> None:
        """Ends, reclaims and takes over what is due."""
        ...

    async def keep(self) -> None:
        """Sees to it that the starts under way here are on record."""
        ...

    async def orphans(self) -> None:
        """Compares the cluster with what is on record."""
        ...

    async def probe(self) -> None:
        """Asks every running sandbox for a proof of life."""
        ...

    async def recount(self) -> None:
        """Compares what is counted with the records."""
        ...


class Replicas:
    """The loops; each runs until it is cancelled and survives a store that is away.

    Args:
        replica: this process's name in the store, as it stands on the records that it writes.
    """

    def __init__(self, store: Keeper, clock: Clock, metrics: Metrics, work: Work, replica: str) -> None:
        self._store = store
        self._clock = clock
        self._metrics = metrics
        self._work = work
        self._replica = replica
        self._turns: set[str] = set()  # that are this replica's now
        self._log = structlog.get_logger("replicas")

    async def follow(self) -> None:
        """Hears what other replicas store."""
        async for news in self._store.feed():
            if isinstance(news, Resync):
                self._metrics.resynced()
                await self._reread()
            elif isinstance(news, Changed):
                self._metrics.lagged(self._clock.now_ms() - news.at_ms)
                self._work.hear(news.sandbox)
            # A change may have been a start that settled: either way somebody may have a turn.
            self._work.wake()

    async def tend(self) -> None:
        """Says that this replica is here; beside that, however long it takes, does what has been left undone."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._repeat("here", self._here), name="here")
            group.create_task(self._repeat("keep", self._work.keep), name="keep")
            sweep = self._in_turn("sweep", HERE_EVERY_S, self._sweep, SWEEP_WITHIN_S)
            group.create_task(sweep, name="sweep")

    async def watch_orphans(self) -> None:
        """Compares cluster and record, at one replica at a time."""
        await self._in_turn("orphans", ORPHANS_EVERY_S, self._work.orphans)

    async def recount(self) -> None:
        """Compares what is counted with the records, at one replica at a time."""
        await self._in_turn("recount", RECOUNT_EVERY_S, self._work.recount)

    async def probe(self, every_ms: int) -> None:
        """Asks for proofs of life, at one replica at a time."""
        await self._in_turn("prober", every_ms / 1000, self._work.probe)

    async def report(self, every_s: float, work: Callable[[], Awaitable[None]]) -> None:
        """Writes down what quotas are used for, at one replica at a time."""
        await self._in_turn("quota use", every_s, work)

    async def go(self) -> None:
        """Says that this replica has gone: others take its starts on at once."""
        try:
            await self._store.lease(f"replica:{self._replica}", self._replica, 0)
        except Problem as problem:
            self._log.warning("left without a word", code=problem.code, detail=problem.detail)

    async def _reread(self) -> None:
        # Until it succeeds: what was stored in the gap nobody tells again, and creates wait for it.
        while True:
            if await self._survive("resync", self._work.reread):
                return
            await asyncio.sleep(REREAD_AGAIN_S)

    async def _repeat(self, what: str, call: Callable[[], Awaitable[None]]) -> None:
        while True:
            if not await self._survive(what, call):
                self._work.doubt()
            await asyncio.sleep(HERE_EVERY_S)

    async def _here(self) -> None:
        await self._store.lease(f"replica:{self._replica}", self._replica, HERE_FOR_MS)
        # Here and not with the work, which is done more rarely: of one that has gone, others take over at once.
        for name in [*self._turns]:
            # One that was given back meanwhile must not be taken again without its work.
            if name in self._turns and not await self._store.lease(name, self._replica, HERE_FOR_MS):
                self._turns.discard(name)

    async def _sweep(self) -> None:
        now_ms = self._clock.now_ms()
        await self._work.settle(await self._store.due(now_ms, now_ms - UNCONFIRMED_MS))

    async def _in_turn(
        self, name: str, every_s: float, work: Callable[[], Awaitable[None]], within_s: float = TURN_WITHIN_S
    ) -> None:
        looks_s = HERE_FOR_MS / 1000

        async def turn() -> None:
            if await self._mine(name) and not await _done(work, within_s):
                # Renewed beside the work, it would be this replica's for as long as the work hangs.
                self._turns.discard(name)
                self._log.error("turn given up: its work hangs", turn=name, within_s=within_s)
                await self._store.lease(name, self._replica, 0)
                await asyncio.sleep(looks_s)

        while True:
            await self._survive(name, turn)
            await asyncio.sleep(every_s if name in self._turns else min(every_s, looks_s))

    async def _mine(self, name: str) -> bool:
        """Takes or keeps a turn; whether this replica has it."""
        mine = await self._store.lease(name, self._replica, HERE_FOR_MS)
        (self._turns.add if mine else self._turns.discard)(name)
        return mine

    async def _survive(self, what: str, call: Callable[[], Awaitable[None]]) -> bool:
        """Whether it was done; a failure is logged."""
        try:
            await call()
        except (Problem, StoreLostError) as problem:
            self._log.warning("not done", what=what, detail=str(problem))
        except Exception:
            # A loop that ends takes the control plane with it; its next round may go better.
            self._log.exception("not done", what=what)
        else:
            return True
        # A task group that is cancelled while a task of it fails raises that failure alone: the loop would never end.
        if (task := asyncio.current_task()) is not None and task.cancelling():
            raise asyncio.CancelledError
        return False


async def _done(work: Callable[[], Awaitable[None]], within_s: float) -> bool:
    """Whether it was over in time; else it is cancelled."""
    try:
        async with asyncio.timeout(within_s) as limit:
            await work()
    except TimeoutError:
        if not limit.expired():
            raise
    return not limit.expired()
