"""The start queue: so many starts at once over all replicas; at one replica in turns that are fair between owners."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from itertools import count
from typing import Final

import structlog

from controlplane.cluster import Cluster
from controlplane.errors import Problem
from controlplane.lifecycle.keeper import Keeper
from controlplane.lifecycle.queue.line import Line
from controlplane.model import Sandbox, State
from controlplane.store import Store

# A freed slot is told at once; this is for nodes that come and for slots of replicas that died.
LOOK_AGAIN_S: Final = 1.0
# A slot outlives its start's deadline a little: it lapses only when its replica has died.
SLACK_MS: Final = 60_000
# For a start that holds its slot already, whatever the limit has become.
NO_LIMIT: Final = 1_000_000


class Turns:
    """Only the head of this replica's queue asks the store for a slot; ``Line`` says who is the next head.

    A start that was begun at a replica that has gone asks at once: it has its slot, as a rule.
    """

    def __init__(self, store: Keeper, cluster: Cluster, at_most: int) -> None:
        self._store = store
        self._cluster = cluster
        self._at_most = at_most
        self._line: Line[asyncio.Future[None]] = Line()
        self._tickets = count()
        self._headed = False
        self._freed = asyncio.Event()
        self._holders: dict[str, int] = {}
        self._held: Counter[str] = Counter()  # slots by owner
        self.waiting = 0
        self._log = structlog.get_logger("turns")

    @property
    def taken(self) -> int:
        """How many starts of this replica have a slot."""
        return len(self._holders)

    def wake(self) -> None:
        """Says that a slot may have become free."""
        self._freed.set()

    @asynccontextmanager
    async def turn(self, sandbox: Sandbox) -> AsyncIterator[None]:
        """Waits for a slot and holds it."""
        asked = False
        try:
            self.waiting += 1
            try:
                # One that was begun elsewhere has its slot, and whoever is at the head may be waiting for that.
                asked = sandbox.state is State.STARTING
                if not (asked and await self._taken(sandbox)):
                    async with self._at_head(sandbox.owner):
                        asked = True
                        await self._slot(sandbox)
            finally:
                self.waiting -= 1
            self._held[sandbox.owner] += 1
            try:
                yield
            finally:
                self._held -= Counter({sandbox.owner: 1})
        finally:
            self._holders.pop(sandbox.id, None)
            if asked:
                await self._give_back(sandbox.id)

    async def retake(self, store: Store) -> None:
        """Takes the slots of the starts under way again, in a store that has forgotten them."""
        for sandbox_id, until_ms in [*self._holders.items()]:
            await store.take_slot(sandbox_id, NO_LIMIT, until_ms)

    @asynccontextmanager
    async def _at_head(self, owner: str) -> AsyncIterator[None]:
        ticket, turn = next(self._tickets), asyncio.get_running_loop().create_future()
        self._line.join(owner, ticket, turn)
        self._pass_on()
        try:
            await turn
            yield
        finally:
            # Also when it was cancelled in the moment in which its turn came.
            if turn.done() and not turn.cancelled():
                self._headed = False
                self._pass_on()
            else:
                self._line.leave(owner, ticket)

    def _pass_on(self) -> None:
        """Makes the next one the head, if there is none: of the owner with the fewest starts here, as a rule."""
        while not self._headed:
            owner = self._line.choose(lambda one: self._held[one], self._line.owners())
            if owner is None:
                return
            ticket, turn = next(self._line.of(owner))
            self._line.served(owner, ticket)
            # One whose caller has just been cancelled is out.
            if not turn.done():
                self._headed = True
                turn.set_result(None)

    async def _slot(self, sandbox: Sandbox) -> None:
        while not await self._taken(sandbox):
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_AGAIN_S):
                    await self._freed.wait()

    async def _taken(self, sandbox: Sandbox) -> bool:
        self._freed.clear()
        limit = min(self._at_most, self._cluster.starts_at_once())
        until_ms = sandbox.start_by_ms + SLACK_MS
        try:
            taken = limit > 0 and await self._store.take_slot(sandbox.id, limit, until_ms)
        except Problem as problem:
            self._log.warning("no slot yet", sandbox_id=sandbox.id, code=problem.code, detail=problem.detail)
            return False
        if taken:
            self._holders[sandbox.id] = until_ms
        return taken

    async def _give_back(self, sandbox_id: str) -> None:
        try:
            await self._store.free_slot(sandbox_id)
        except Problem as problem:
            # It lapses by itself.
            self._log.warning("slot not freed", sandbox_id=sandbox_id, code=problem.code, detail=problem.detail)
        self.wake()
