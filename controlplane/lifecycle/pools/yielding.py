"""``Yielding``: unclaimed sandboxes make room on their nodes for creates that no node has room for."""

import asyncio
from typing import Final

import structlog

from controlplane.capacity import rivals, to_end
from controlplane.clock import Clock
from controlplane.cluster import Cluster
from controlplane.errors import Problem
from controlplane.lifecycle.pools.service import Pools
from controlplane.lifecycle.record.transition import Transition
from controlplane.lifecycle.waiting.gates.room import RoomGate
from controlplane.store import StoreLostError

# Of starts that wait, so many are looked at in one turn, and so many sandboxes end for them at most.
MOST_STARTS: Final = 16
MOST_ENDED: Final = 16
# A turn looks at all that began to wait since the last one.
PAUSE_S: Final = 0.25
# What has ended gives its room back within seconds; after this time its node is not expected to do so any more.
LEAVES_WITHIN_MS: Final = 60_000


class Yielding:
    """Follows the starts that wait for room at this replica; each replica does so for its own.

    What is ended is on its way until its pod is gone: nothing else is ended for the same start meanwhile.

    Args:
        pools: have what is unclaimed.
        queue: has the starts.
        cluster: knows what is free.
        clock: the time of day.
    """

    def __init__(self, pools: Pools, queue: RoomGate, cluster: Cluster, clock: Clock) -> None:
        self._pools = pools
        self._queue = queue
        self._cluster = cluster
        self._clock = clock
        self._leaving: dict[str, int] = {}  # sandboxes that have ended, and when that was heard (Unix ms)
        self._log = structlog.get_logger("yielding")

    def on(self, transition: Transition) -> None:
        """Takes in which sandboxes are about to leave their nodes."""
        now_ms, room = self._clock.now_ms(), self._cluster.room
        if transition.after.end is not None and room is not None and transition.after.id in room:
            self._leaving.setdefault(transition.after.id, now_ms)
        while self._leaving:
            first = next(iter(self._leaving))
            if room is not None and first in room and 0 <= now_ms - self._leaving[first] < LEAVES_WITHIN_MS:
                break
            del self._leaving[first]

    async def run(self) -> None:
        """Ends unclaimed sandboxes for starts that wait; until cancelled."""
        while True:
            await self._queue.short.wait()
            self._queue.short.clear()
            try:
                await self.turn()
            except (Problem, StoreLostError) as problem:
                self._log.warning("no room made for starts that wait, retrying", detail=str(problem))
            await asyncio.sleep(PAUSE_S)

    async def turn(self) -> None:
        """ConsoleViews once.

        Raises:
            Problem: the store's.
        """
        room = self._cluster.room
        if room is None or not room.known or not self._queue.wanting(1):
            return
        offers = await self._pools.offers()
        # Not before: what was read may have taken time.
        short = self._queue.wanting(MOST_STARTS)
        # First what has no node: the scheduler would give it what others have left.
        unplaced = rivals(short, room, {one: pool.selector for one, pool in offers.items()})
        for sandbox_id in unplaced or to_end(short, room, self._leaving, list(offers), MOST_ENDED):
            await self._pools.make_room(offers[sandbox_id], sandbox_id)
