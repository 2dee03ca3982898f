"""The start queue: limits concurrent starts, in all and on each node; at one replica it is fair between owners.

``store/slots.py`` has the rule for the limits. A start holds a slot from its turn until it is over, except while the
scheduler can place it on no node: then it waits beside the queue, and holds a slot again as soon as it is placed.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from itertools import count
from typing import Final, Self

import structlog

from controlplane.cluster import Cluster, Placement
from controlplane.errors import Problem
from controlplane.lifecycle.record.recovering_store import RecoveringStore
from controlplane.lifecycle.record.transition import Effect, Transition
from controlplane.lifecycle.starting.lane import Lane
from controlplane.model import Sandbox, State
from controlplane.store import Slot, Store

# The store wakes the replica that may have a slot; this retry finds new nodes, and slots of replicas that died.
LOOK_AGAIN_S: Final = 1.0
# A slot expires this long after its start's deadline, so that it expires only when its replica has died.
SLACK_MS: Final = 60_000
# For a start that holds its slot already, even if the limit is lower by then.
NO_LIMIT: Final = 1_000_000


@dataclass(slots=True, eq=False)
class Start:
    """A start that has had its turn, or waits for it.

    Attributes:
        until_ms: when its slot expires (Unix ms).
        placement_key: see ``SandboxSpec.placement_key``.
        has_slot: whether it holds a slot.
        node: where its pod is placed; empty: not placed yet.
        refused: the scheduler can place its pod on no node.
        asked: the store may have given it a slot that its record has not freed, so that it has to be freed.
        has_room: reserves room for it, or says that there is none any more; then it gives its turn up.
        gives_up: it has done so.
    """

    sandbox_id: str
    owner: str
    until_ms: int
    placement_key: str
    has_slot: bool = False
    node: str = ""
    refused: bool = False
    asked: bool = False
    has_room: Callable[[], bool] = lambda: True
    gives_up: bool = False

    @classmethod
    def of(cls, sandbox: Sandbox, has_room: Callable[[], bool]) -> Self:
        """A start without slot and node."""
        until_ms = sandbox.start_by_ms + SLACK_MS
        return cls(sandbox.id, sandbox.owner, until_ms, sandbox.spec.placement_key(), has_room=has_room)


class StartQueue:
    """Only the head of this replica's queue requests a slot from the store; ``Lane`` chooses the next head.

    It asks at once, unless the last answer said that there is none; then it asks when the store wakes this replica. So
    what is freed wakes one waiter of all replicas, and few questions are refused.

    Starts that are held until a full node can take another one wait in a lane for their placement key, beside the
    queue: the head of each such lane goes back to the head of the queue now and then. A start that is taken over from
    a dead replica requests its slot at once: usually it holds one already, or its pod is placed.
    """

    def __init__(self, store: RecoveringStore, cluster: Cluster, at_most: int) -> None:
        self._store = store
        self._cluster = cluster
        self._at_most = at_most
        self._starts: dict[str, Start] = {}
        self._held: Counter[str] = Counter()  # slots by owner
        self._queue = Lane(self._held.__getitem__)
        self._lanes: dict[str, Lane] = {}  # by placement key
        self._tickets = count()
        self._queue.news.set()
        self.waiting = 0
        self._log = structlog.get_logger("start queue")

    def __contains__(self, sandbox_id: str) -> bool:
        """Whether this replica runs its start, or has it in the queue."""
        return sandbox_id in self._starts

    @property
    def taken(self) -> int:
        """How many starts of this replica hold a slot."""
        return self._held.total()

    @property
    def refused(self) -> Sequence[Start]:
        """The starts of this replica that the scheduler can place on no node, oldest first."""
        return [one for one in self._starts.values() if one.refused]

    def on(self, transition: Transition) -> None:
        """Takes in that a start is over, here or elsewhere: its record has freed its slot."""
        if Effect.SETTLE not in transition.effects:
            return
        # Not one that asks at this moment: its slot may be taken after its record was stored.
        if (start := self._starts.get(transition.after.id)) is not None and start.has_slot:
            self._mark(start, has_slot=False)
            start.asked = False
        self._freed()

    def ticket(self) -> int:
        """A place by arrival; a smaller one came earlier."""
        return next(self._tickets)

    def wake(self, placement_key: str | None = None) -> None:
        """Wakes the waiters: there may be a slot for a start with this placement key; None: for any."""
        self._queue.news.set()
        for key, lane in self._lanes.items():
            if placement_key in (None, key):
                lane.news.set()

    @asynccontextmanager
    async def turn(
        self, sandbox: Sandbox, has_room: Callable[[], bool] = lambda: True, ticket: int | None = None
    ) -> AsyncIterator[Sequence[str] | None]:
        """Waits for a slot and holds it, by the rule in the module's docstring.

        Args:
            sandbox: its start.
            has_room: asked at the head of the queue, before a slot is.
            ticket: its place by arrival, for a start that comes again; None: it comes now.

        Yields:
            The nodes to avoid; None: it has no room, and no slot.
        """
        start = Start.of(sandbox, has_room)
        self._starts[start.sandbox_id] = start
        try:
            self.waiting += 1
            try:
                begun = sandbox.state is State.STARTING
                slot = await self._slot(start, self.ticket() if ticket is None else ticket, begun=begun)
            finally:
                self.waiting -= 1
            yield None if start.gives_up else slot.avoid
        finally:
            del self._starts[start.sandbox_id]
            self._mark(start, has_slot=False)
            if start.asked:
                await self._give_back(start)

    async def placed(self, placement: Placement) -> None:
        """Records on which node a start of this replica was placed, or that it fits on none; ignores other starts."""
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
            # Until it is over it counts as a start without a node, which lets fewer starts in, not more.
            self._complain("node of a start not stored, fewer starts are let in until it is over", start, problem)
        self._freed()

    async def retake(self, store: Store) -> None:
        """Takes slots for the starts under way again, in a store that has lost them."""
        for start in [one for one in self._starts.values() if one.has_slot]:
            if start.node:
                await self._place(store, start)
            else:
                await store.take_slot(start.sandbox_id, NO_LIMIT, start.until_ms)

    async def _slot(self, start: Start, ticket: int, *, begun: bool) -> Slot:
        if begun and (placement := self._cluster.placement(start.sandbox_id)) is not None:
            await self.placed(placement)
        # A start that was begun elsewhere holds a slot already, and the head of the queue may be waiting for that slot.
        if begun and (slot := await self._ask(start)):
            return slot
        slot = await self._at_head(start, ticket)
        return slot if slot or start.gives_up else await self._beside(start, ticket)

    async def _at_head(self, start: Start, ticket: int, *, beside: bool = False) -> Slot:
        """Requests a slot at the head of the queue until it has one or is held; it is held if its lane has waiters."""
        async with self._queue.at_head(start.owner, ticket):
            while beside or start.placement_key not in self._lanes:
                await _next(self._queue)
                if not start.has_room():
                    start.gives_up = True
                    break
                slot = await self._ask(start)
                if slot or slot.held_by:
                    return slot
            return Slot(taken=False)

    async def _beside(self, start: Start, ticket: int) -> Slot:
        """Waits in the lane of its placement key; the head of that lane retries at the head of the queue."""
        lane = self._lanes.setdefault(start.placement_key, Lane(self._held.__getitem__))
        try:
            async with lane.at_head(start.owner, ticket):
                while True:
                    lane.news.clear()
                    slot = await self._at_head(start, ticket, beside=True)
                    if slot or start.gives_up:
                        return slot
                    await _next(lane)
        finally:
            if lane.empty and self._lanes.get(start.placement_key) is lane:
                del self._lanes[start.placement_key]

    async def _ask(self, start: Start) -> Slot:
        if start.node or start.refused:
            return Slot(taken=True)  # its pod exists already, so a slot would hold nothing back
        limit, per_node = min(self._at_most, self._cluster.starts_at_once()), self._cluster.starts_per_node
        slot, start.asked, none_left = Slot(taken=False), True, False
        self._queue.news.clear()
        try:
            if limit > 0:
                asked = (start.sandbox_id, limit, start.until_ms, per_node, start.placement_key)
                slot = await self._store.take_slot(*asked, more=bool(len(self._queue)))
            none_left = slot.last or not (slot or slot.held_by)
        except Problem as problem:
            self._complain("start slot not taken, retrying", start, problem)
            none_left = True
        finally:
            if not none_left:
                self._queue.news.set()
        if slot:
            self._mark(start, has_slot=True)
        return slot

    async def _place(self, store: Store | RecoveringStore, start: Start) -> None:
        per_node = self._cluster.starts_per_node
        await store.place_slot(start.sandbox_id, start.node, start.until_ms, per_node, start.placement_key)

    async def _give_back(self, start: Start) -> None:
        try:
            await self._store.free_slot(start.sandbox_id)
        except Problem as problem:
            # It expires by itself, and the store frees it when the record says that the start is over.
            self._complain("start slot not freed, it is freed when the start is over", start, problem)
        self._freed()

    def _freed(self) -> None:
        """Wakes the waiters after a change of slots, unless the store does: what many replicas share wakes one."""
        if not self._store.shared:
            self.wake()

    def _complain(self, what: str, start: Start, problem: Problem) -> None:
        self._log.warning(what, sandbox_id=start.sandbox_id, code=problem.code, detail=problem.detail)

    def _mark(self, start: Start, *, has_slot: bool) -> None:
        self._held[start.owner] += has_slot - start.has_slot
        if not self._held[start.owner]:
            del self._held[start.owner]
        start.has_slot = has_slot


async def _next(lane: Lane) -> None:
    """Returns when there is news for a lane's head, or after ``LOOK_AGAIN_S``."""
    with suppress(TimeoutError):
        async with asyncio.timeout(LOOK_AGAIN_S):
            await lane.news.wait()
