"""A start slot: limits concurrent starts, in all and on each node; at one replica it is fair between owners.

``store/slots.py`` has the rule for the limits. A start holds a slot from its turn until it is over, except while the
scheduler can place it on no node: then it waits beside the queue, and holds a slot again as soon as it is placed.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final

import structlog

from controlplane.cluster import Cluster, Placement
from controlplane.errors import Problem
from controlplane.lifecycle.record.recovering_store import RecoveringStore
from controlplane.lifecycle.record.transition import Effect, Transition
from controlplane.lifecycle.waiting.head_queue import HeadQueue
from controlplane.lifecycle.waiting.near_waits import FIRST_PAUSE_S, LONGEST_PAUSE_S
from controlplane.lifecycle.waiting.pace import LOOK_AGAIN_S
from controlplane.lifecycle.waiting.ticket import GivesBack, HasRoom, Ticket
from controlplane.model import State
from controlplane.store import Slot, Store

# For a start that holds its slot already, even if the limit is lower by then.
NO_LIMIT: Final = 1_000_000
# The answer to a start while others of its kind wait here.
_HELD: Final = Slot(taken=False, held_by="the node that holds them")


class SlotGate:
    """Only the head of this replica's queue requests a slot from the store; ``HeadQueue`` chooses the next head.

    It asks at once, unless the last answer said that there is none; then it asks when the store wakes this replica. So
    what is freed wakes one waiter of all replicas, and few questions are refused.

    Starts that are held until a full node can take another one wait in a held queue, one for each placement key. The
    head of a held queue goes to the head of the main queue now and then. A start that is taken over from
    a dead replica requests its slot at once: usually it holds one already, or its pod is placed.
    """

    def __init__(self, store: RecoveringStore, cluster: Cluster, at_most: int) -> None:
        self._store = store
        self._cluster = cluster
        self._at_most = at_most
        self._starts: dict[str, Ticket] = {}
        self._held: Counter[str] = Counter()  # slots by owner
        self._queue = HeadQueue(self._held.__getitem__)
        self._held_queues: dict[str, HeadQueue] = {}  # by placement key
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
    def refused(self) -> Sequence[Ticket]:
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

    def wake(self, placement_key: str | None = None) -> None:
        """Wakes the waiters: there may be a slot for a start with this placement key; None: for any."""
        self._queue.news.set()
        for key, held in self._held_queues.items():
            if placement_key in (None, key):
                held.news.set()

    @asynccontextmanager
    async def turn(
        self, start: Ticket, has_room: HasRoom = lambda: True, gives_back: GivesBack = lambda _: False
    ) -> AsyncIterator[Sequence[str] | None]:
        """Waits for a slot and holds it, by the rule in the module's docstring.

        Args:
            start: waits; its place is by arrival, also when it comes again.
            has_room: asked at the head of the queue, before a slot is.
            gives_back: asked with a slot that makes it avoid nodes.

        Yields:
            The nodes to avoid; None: it has no room, and no slot.
        """
        self._starts[start.sandbox.id] = start
        try:
            self.waiting += 1
            try:
                avoid = await self._granted(start, has_room, gives_back)
            finally:
                self.waiting -= 1
            yield avoid
        finally:
            del self._starts[start.sandbox.id]
            await self._leave(start)

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
                await store.take_slot(start.sandbox.id, NO_LIMIT, start.slot_until_ms)

    async def _granted(self, start: Ticket, has_room: HasRoom, gives_back: GivesBack) -> Sequence[str] | None:
        pause_s = FIRST_PAUSE_S
        while (slot := await self._slot(start, has_room)) and slot.avoid and gives_back(slot.avoid):
            # Without its slot, and with its room.
            await self._leave(start)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
        return slot.avoid if slot else None

    async def _slot(self, start: Ticket, has_room: HasRoom) -> Slot:
        """A slot; without one it has no room."""
        if start.sandbox.state is State.STARTING:
            if (placement := self._cluster.placement(start.sandbox.id)) is not None:
                await self.placed(placement)
            # It was begun elsewhere, so it holds a slot already, and the head of the queue may be waiting for that one.
            if slot := await self._ask(start):
                return slot
        slot = await self._at_head(start, has_room)
        return await self._beside(start, has_room) if slot.held_by else slot

    async def _at_head(self, start: Ticket, has_room: HasRoom, *, beside: bool = False) -> Slot:
        """Requests a slot at the head of the main queue until it has one, is held, or has no room."""
        async with self._queue.at_head(start.sandbox.owner, start.number):
            while beside or start.sandbox.spec.placement_key() not in self._held_queues:
                await _next(self._queue)
                if not has_room():
                    return Slot(taken=False)
                slot = await self._ask(start)
                if slot or slot.held_by:
                    return slot
            return _HELD

    async def _beside(self, start: Ticket, has_room: HasRoom) -> Slot:
        """Waits in the held queue of its placement key; the head of that one retries at the head of the main queue."""
        held = self._held_queues.setdefault(start.sandbox.spec.placement_key(), HeadQueue(self._held.__getitem__))
        try:
            async with held.at_head(start.sandbox.owner, start.number):
                while True:
                    held.news.clear()
                    slot = await self._at_head(start, has_room, beside=True)
                    if not slot.held_by:
                        return slot
                    await _next(held)
        finally:
            if held.empty and self._held_queues.get(start.sandbox.spec.placement_key()) is held:
                del self._held_queues[start.sandbox.spec.placement_key()]

    async def _ask(self, start: Ticket) -> Slot:
        if start.node or start.refused:
            return Slot(taken=True)  # its pod exists already, so a slot would hold nothing back
        limit, per_node = min(self._at_most, self._cluster.starts_at_once()), self._cluster.starts_per_node
        slot, start.asked, none_left = Slot(taken=False), True, False
        self._queue.news.clear()
        try:
            if limit > 0:
                asked = (start.sandbox.id, limit, start.slot_until_ms, per_node, start.sandbox.spec.placement_key())
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

    async def _place(self, store: Store | RecoveringStore, start: Ticket) -> None:
        per_node = self._cluster.starts_per_node
        await store.place_slot(
            start.sandbox.id, start.node, start.slot_until_ms, per_node, start.sandbox.spec.placement_key()
        )

    async def _leave(self, start: Ticket) -> None:
        self._mark(start, has_slot=False)
        if start.asked:
            await self._give_back(start)
            start.asked = False

    async def _give_back(self, start: Ticket) -> None:
        try:
            await self._store.free_slot(start.sandbox.id)
        except Problem as problem:
            # It expires by itself, and the store frees it when the record says that the start is over.
            self._complain("start slot not freed, it is freed when the start is over", start, problem)
        self._freed()

    def _freed(self) -> None:
        """Wakes the waiters after a change of slots, unless the store does: what many replicas share wakes one."""
        if not self._store.shared:
            self.wake()

    def _complain(self, what: str, start: Ticket, problem: Problem) -> None:
        self._log.warning(what, sandbox_id=start.sandbox.id, code=problem.code, detail=problem.detail)

    def _mark(self, start: Ticket, *, has_slot: bool) -> None:
        self._held[start.sandbox.owner] += has_slot - start.has_slot
        if not self._held[start.sandbox.owner]:
            del self._held[start.sandbox.owner]
        start.has_slot = has_slot


async def _next(queue: HeadQueue) -> None:
    """Returns when there is news for a queue's head, or after ``LOOK_AGAIN_S``."""
    with suppress(TimeoutError):
        async with asyncio.timeout(LOOK_AGAIN_S):
            await queue.news.wait()
