"""The start queue: so many starts at once, in all and on each node; at one replica in turns, fair between owners.

``store/slots.py`` tells the rule of the bounds. A start has its slot from its turn until it is over, but not while no
node takes it: then it waits beside the queue, and has a slot again from the moment in which it is placed.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from itertools import count
from typing import Final, Self

import structlog

from controlplane.cluster import Cluster, Placement
from controlplane.errors import Problem
from controlplane.lifecycle.keeper import Keeper
from controlplane.lifecycle.lane import Lane
from controlplane.model import Sandbox, State
from controlplane.store import Slot, Store

# A freed slot is told at once; this is for nodes that come and for slots of replicas that died.
LOOK_AGAIN_S: Final = 1.0
# A slot outlives its start's deadline a little: it lapses only when its replica has died.
SLACK_MS: Final = 60_000
# For a start that holds its slot already, whatever the limit has become.
NO_LIMIT: Final = 1_000_000


@dataclass(slots=True, eq=False)
class Start:
    """A start that has come to its turn, or waits for it.

    Attributes:
        placement_key: see ``SandboxSpec.placement_key``.
        has_slot: whether it counts.
        node: where it is; empty: nowhere yet.
        refused: no node takes it.
        asked: the store may have a slot of it.
    """

    sandbox_id: str
    owner: str
    until_ms: int
    placement_key: str
    has_slot: bool = False
    node: str = ""
    refused: bool = False
    asked: bool = False

    @classmethod
    def of(cls, sandbox: Sandbox) -> Self:
        """One that has nothing yet."""
        until_ms = sandbox.start_by_ms + SLACK_MS
        return cls(sandbox.id, sandbox.owner, until_ms, sandbox.spec.placement_key())


class Turns:
    """Only the head of this replica's queue asks the store for a slot; ``Lane`` chooses the next head.

    Those that are held until a certain node bears a start wait in a lane of their own, beside the queue: one of each
    such lane comes back to the head now and then. A start that was begun at a replica that has gone asks at once: it
    has its slot, as a rule, or its pod is there already.
    """

    def __init__(self, store: Keeper, cluster: Cluster, at_most: int) -> None:
        self._store = store
        self._cluster = cluster
        self._at_most = at_most
        self._starts: dict[str, Start] = {}
        self._held: Counter[str] = Counter()  # slots by owner
        self._queue = Lane(self._held.__getitem__)
        self._lanes: dict[str, Lane] = {}  # by placement key
        self._tickets = count()
        self._news = 0
        self._heard = asyncio.Event()
        self.waiting = 0
        self._log = structlog.get_logger("turns")

    def __contains__(self, sandbox_id: str) -> bool:
        """Whether this replica starts it, or has it wait for its turn."""
        return sandbox_id in self._starts

    @property
    def taken(self) -> int:
        """How many starts of this replica have a slot."""
        return self._held.total()

    @property
    def refused(self) -> Sequence[Start]:
        """The starts of this replica that no node takes, oldest first."""
        return [one for one in self._starts.values() if one.refused]

    def wake(self) -> None:
        """Says that a slot may have become free."""
        self._news += 1
        heard, self._heard = self._heard, asyncio.Event()
        heard.set()

    @asynccontextmanager
    async def turn(self, sandbox: Sandbox) -> AsyncIterator[Sequence[str]]:
        """Waits for a slot and holds it, as the head of this module says; yields the nodes to avoid."""
        start = Start.of(sandbox)
        self._starts[start.sandbox_id] = start
        try:
            self.waiting += 1
            try:
                slot = await self._slot(start, begun=sandbox.state is State.STARTING)
            finally:
                self.waiting -= 1
            yield slot.avoid
        finally:
            del self._starts[start.sandbox_id]
            self._mark(start, has_slot=False)
            if start.asked:
                await self._give_back(start)

    async def placed(self, placement: Placement) -> None:
        """Hears where the cluster has put a start, or that no node takes it; nothing to one of another replica."""
        start = self._starts.get(placement.sandbox_id)
        if start is None:
            return
        start.node, start.refused, start.asked = placement.node, not placement.node, True
        self._mark(start, has_slot=not start.refused)
        if start.refused:
            await self._give_back(start)
            return
        try:
            await self._place(self._store, start)
        except Problem as problem:
            # It counts as one without a node until it is over: less is sent, not more.
            self._complain("node not stored", start, problem)
        self.wake()

    async def retake(self, store: Store) -> None:
        """Takes the slots of the starts under way again, in a store that has forgotten them."""
        for start in [one for one in self._starts.values() if one.has_slot]:
            if start.node:
                await self._place(store, start)
            else:
                await store.take_slot(start.sandbox_id, NO_LIMIT, start.until_ms)

    async def _slot(self, start: Start, *, begun: bool) -> Slot:
        if begun and (placement := self._cluster.placement(start.sandbox_id)) is not None:
            await self.placed(placement)
        # One that was begun elsewhere has its slot, for which the head may be waiting.
        if begun and (slot := await self._ask(start)):
            return slot
        ticket = next(self._tickets)
        return await self._at_head(start, ticket) or await self._beside(start, ticket)

    async def _at_head(self, start: Start, ticket: int, *, beside: bool = False) -> Slot:
        """Asks at the head of the queue until it has a slot or is held, as it is where others of its lane wait."""
        async with self._queue.at_head(start.owner, ticket):
            while beside or start.placement_key not in self._lanes:
                news = self._news
                slot = await self._ask(start)
                if slot or slot.held_by:
                    return slot
                await self._next(news)
            return Slot(taken=False)

    async def _beside(self, start: Start, ticket: int) -> Slot:
        """Waits with all that is held as it is; the first of them looks again at the head of the queue."""
        lane = self._lanes.setdefault(start.placement_key, Lane(self._held.__getitem__))
        try:
            async with lane.at_head(start.owner, ticket):
                while True:
                    news = self._news
                    if slot := await self._at_head(start, ticket, beside=True):
                        return slot
                    await self._next(news)
        finally:
            if lane.empty and self._lanes.get(start.placement_key) is lane:
                del self._lanes[start.placement_key]

    async def _next(self, since: int) -> None:
        """Returns when something was freed since then, or it is time to look again."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK_AGAIN_S):
                while self._news == since:
                    await self._heard.wait()

    async def _ask(self, start: Start) -> Slot:
        if start.node or start.refused:
            return Slot(taken=True)  # its pod is there: a slot is none of its wishes any more
        limit, per_node = min(self._at_most, self._cluster.starts_at_once()), self._cluster.starts_per_node
        slot, start.asked = Slot(taken=False), True
        try:
            if limit > 0:
                asked = (start.sandbox_id, limit, start.until_ms, per_node, start.placement_key)
                slot = await self._store.take_slot(*asked)
        except Problem as problem:
            self._complain("no slot yet", start, problem)
        if slot:
            self._mark(start, has_slot=True)
        return slot

    async def _place(self, store: Store | Keeper, start: Start) -> None:
        per_node = self._cluster.starts_per_node
        await store.place_slot(start.sandbox_id, start.node, start.until_ms, per_node, start.placement_key)

    async def _give_back(self, start: Start) -> None:
        try:
            await self._store.free_slot(start.sandbox_id)
        except Problem as problem:
            # It lapses by itself.
            self._complain("slot not freed", start, problem)
        self.wake()

    def _complain(self, what: str, start: Start, problem: Problem) -> None:
        self._log.warning(what, sandbox_id=start.sandbox_id, code=problem.code, detail=problem.detail)

    def _mark(self, start: Start, *, has_slot: bool) -> None:
        self._held[start.owner] += has_slot - start.has_slot
        if not self._held[start.owner]:
            del self._held[start.owner]
        start.has_slot = has_slot
