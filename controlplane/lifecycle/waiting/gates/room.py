"""Room on a node: a start that no node has room for waits here, and no pod is made of it.

* A start goes on to the queue for slots as soon as a node has room for it, besides its owner's that went on before and
  ask for the same. Starts that request the same wait in one line, which is fair between owners (``room_lines``). What
  fits passes what does not, as at the scheduler. Starts of pools come last, and stand back while creates wait anywhere
  (``creates_first``).
* A cluster that can add nodes does so for Pending pods: some starts of each replica go on without room (``pending``).
* The scheduler is right. If it refuses a pod for which there was room, that is counted, and no further start with the
  same requests goes on while it refuses that one.
* Starts of other replicas reserve room here too, with their records. Of two that reserve the same room at the same
  moment the one whose record says first that it starts has it; where the scheduler has to refuse one and no node can be
  added, its pod is taken back, and it waits here again.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import chain, count, islice
from typing import Final

from controlplane.capacity import Room, Short
from controlplane.clock import Clock
from controlplane.cluster import Cluster, Placement
from controlplane.lifecycle.deadlines import Deadlines
from controlplane.lifecycle.record.transition import Transition
from controlplane.lifecycle.waiting.creates_first import CreatesFirst
from controlplane.lifecycle.waiting.gates.room_told import RoomTold, known_room, where
from controlplane.lifecycle.waiting.owner_counts import OwnerCounts
from controlplane.lifecycle.waiting.pace import LOOK_AGAIN_S
from controlplane.lifecycle.waiting.pending import Pending
from controlplane.lifecycle.waiting.room_lines import RoomLines
from controlplane.lifecycle.waiting.standings import SLACK_MS, Standings
from controlplane.lifecycle.waiting.ticket import HasRoom, Ticket
from controlplane.lifecycle.waiting.told import NO_ROOM
from controlplane.model import Sandbox, State
from controlplane.telemetry import Metrics

# Room becomes free in bursts: waiting starts look once for all of what came within this time.
LOOK_AFTER_S: Final = 0.02
# What waits for longer is told to the other replicas: until then they count alike.
NOTED_AFTER_S: Final = 0.25
# What another replica has just placed is seen meanwhile.
TAKEN_BACK_AFTER_S: Final = 0.5
_ON_NODES: Final = frozenset({State.STARTING, State.RUNNING})


class RoomGate:
    """Lets starts go on for which there is room.

    Attributes:
        short: set while claimed starts wait for room.
        creates_first: whether starts of pools stand back.
        told: where those stand that wait, and why.

    Args:
        cluster: knows what is free, or does not: then nothing waits here.
        clock: the time of day.
        metrics: counts waits, and what the scheduler saw otherwise.
        most_pending: see ``Pending``.
        note: has on record that a start waits for room, so that every replica knows.
    """

    def __init__(
        self,
        cluster: Cluster,
        clock: Clock,
        metrics: Metrics,
        most_pending: int,
        note: Callable[[Sandbox], Awaitable[None]],
    ) -> None:
        self._cluster = cluster
        self._clock = clock
        self._metrics = metrics
        self._note = note
        self._owned = OwnerCounts()
        self._standings = Standings()
        self.creates_first = CreatesFirst(self._standings)
        self._lines = RoomLines(self._owned.of)
        self._waiters: dict[str, Ticket] = {}  # all starts of this replica
        self._gone_on: Counter[tuple[str, str]] = Counter()  # by owner and key: those that have reserved nothing yet
        self._pending = Pending(most_pending)
        self._refused: dict[str, str] = {}  # those that the scheduler refuses, and their placement keys
        self._others: dict[str, Sandbox] = {}  # starts that other replicas have begun
        self._expiring = Deadlines()  # theirs
        self.told = RoomTold(cluster, clock, self._standings, self._refused, self._waiters)
        self._tickets = count()
        self.short = asyncio.Event()
        self._looking: asyncio.TimerHandle | None = None
        if cluster.room is not None:
            cluster.room.listen(self._look_soon)

    def __len__(self) -> int:
        """How many starts wait."""
        return len(self._lines)

    def ticket(self, sandbox: Sandbox, *, lazily: bool = False) -> Ticket:
        """A start that comes now; ``lazily``: see ``Ticket``."""
        return Ticket(sandbox, self._cluster.request(sandbox.spec), next(self._tickets), lazily)

    @asynccontextmanager
    async def turn(self, start: Ticket) -> AsyncIterator[HasRoom]:
        """Waits until a node has room; a start that has begun already does not wait.

        Args:
            start: waits; its place is by arrival, also when it comes again.

        Yields:
            Reserves room until the end of the block, or looks whether what it has is still there. False: others have
            taken the room, so it has to wait anew.

        Raises:
            Problem: capacity_unavailable, when there is no time left to start.
        """
        sandbox = start.sandbox
        self._waiters[sandbox.id] = start
        try:
            begun = start.begun = sandbox.state is State.STARTING
            if begun:
                self._take_over(start)
            elif self._lines.hold_back(start) or not self._goes(start):
                await self._wait(start)
            yield lambda: begun or self._has_room(start)
        finally:
            del self._waiters[sandbox.id]
            self._standings.drop(sandbox.id)
            self._reserves(start)
            self._refused.pop(sandbox.id, None)
            self._pending.discard(sandbox.id)
            if not start.begun:
                self._owned.drop(sandbox.id)
            self._release(sandbox.id)

    def on(self, transition: Transition) -> None:
        """Takes in who has what, and what other replicas have begun: it needs room here too."""
        after, now_ms = transition.after, self._clock.now_ms()
        if after.end is not None:
            self._owned.drop(after.id)
        elif after.state in _ON_NODES and not after.unclaimed:
            self._owned.add(after.id, after.owner)
        if (start := self._waiters.get(after.id)) is not None:
            start.begun = start.begun or after.state in _ON_NODES or after.end is not None
        self.creates_first.on(transition)
        if after.id in self._standings and after.end is not None and after.end.cause == NO_ROOM:
            self._standings.refuse(after, now_ms)
        if after.id in self._waiters or self._cluster.room is None:
            return
        self._standings.tidy(now_ms)
        if after.waits_for_room:
            self._standings.add(after)
        elif after.state is State.STARTING:
            self._begun_elsewhere(after)
        else:
            self._over_elsewhere(after.id)
        for other in self._expiring.due(now_ms - SLACK_MS):
            self._over_elsewhere(other)

    def placed(self, placement: Placement) -> None:
        """Takes in what the scheduler says of a start; another replica's that it refuses takes no room here."""
        start = self._waiters.get(placement.sandbox_id)
        if start is None:
            self._placed_elsewhere(placement)
            return
        if placement.node:
            self._standings.drop(placement.sandbox_id)
            self._pending.discard(placement.sandbox_id)
            self._refused.pop(placement.sandbox_id, None)
            self._look_soon()
            return
        in_spite = placement.sandbox_id not in self._pending and self._room is not None
        if in_spite:
            self._metrics.refused_in_spite_of_room()
        self._pending.add(start, keeps_room=not in_spite)
        self._standings.add(start.sandbox)
        self._refused[placement.sandbox_id] = start.key
        self._release(placement.sandbox_id)

    def wanting(self, most: int) -> Sequence[Short]:
        """What starts need that wait for room at this replica, of owners, those first that have pods; oldest first."""
        pending = (one for one in self._pending.unkept() if not one.sandbox.unclaimed)
        return [Short(*where(self._cluster, one)) for one in islice(chain(pending, self._lines.claimed(most)), most)]

    async def fits_nowhere(self, sandbox_id: str) -> bool:
        """Whether a pod that the scheduler has just refused is to be taken back: no node can be added for it.

        What is refused for another reason than room keeps its pod: only the scheduler knows when that has passed.
        """
        if not self._pending.none_may_be:
            return False
        await asyncio.sleep(TAKEN_BACK_AFTER_S)
        start, room = self._waiters.get(sandbox_id), self._room
        return (
            start is not None
            and room is not None
            and sandbox_id in self._refused
            and not room.fit(*where(self._cluster, start), enough=1)
        )

    async def comes_back(self, sandbox_id: str) -> None:
        """Waits until there is room for a start whose pod was taken back, which is reserved for it then.

        Raises:
            Problem: capacity_unavailable, when there is no time left to start.
        """
        self._refused.pop(sandbox_id, None)
        self._pending.discard(sandbox_id)
        start = self._waiters.get(sandbox_id)
        while start is not None:
            await self._wait(start)
            if self._has_room(start):
                return
            self._reserves(start)
            start = self._waiters.get(sandbox_id)

    def again(self, sandbox_id: str, *, whole: bool = False) -> None:
        """Keeps room for a start whose pod is about to be replaced.

        Args:
            sandbox_id: of which sandbox.
            whole: by one that does not mount its image lazily.
        """
        start, room = self._waiters.get(sandbox_id), self._room
        if start is None or room is None:
            return
        start.lazily = start.lazily and not whole
        room.again(sandbox_id, *where(self._cluster, start))

    @property
    def _room(self) -> Room | None:
        return known_room(self._cluster)

    async def _wait(self, start: Ticket) -> None:
        turn = start.turn = asyncio.get_running_loop().create_future()
        sandbox, began_ms = start.sandbox, self._clock.now_ms()
        self._lines.join(start)
        self._standings.add(sandbox)
        self.told.joined(sandbox.owner)
        self._look_soon()
        try:
            left_s = max(0, sandbox.begin_by_ms - began_ms) / 1000
            if not (await asyncio.wait((turn,), timeout=min(left_s, NOTED_AFTER_S)))[0]:
                await self._note(sandbox)
                left_s = max(0, sandbox.begin_by_ms - self._clock.now_ms()) / 1000
                await asyncio.wait((turn,), timeout=left_s)
            if not turn.done():
                raise self.told.refuse(sandbox)
        finally:
            self._standings.drop(sandbox.id)
            self._lines.leave(start)
            waited_ms = self._clock.now_ms() - began_ms
            self._metrics.waited("nodes", "admitted" if turn.done() else "refused", waited_ms)
            if not len(self._lines):
                self.told.clear()

    def _take_over(self, start: Ticket) -> None:
        """Of a start that another replica began: its pod is made or there already, so it goes on without room, too."""
        self._others.pop(start.sandbox.id, None)
        self._expiring.discard(start.sandbox.id)
        if not self._reserve(start, anyway=True):
            self._pending.add(start)

    def _begun_elsewhere(self, other: Sandbox) -> None:
        self._others[other.id] = other
        self._expiring.put(other.id, other.start_by_ms)
        self._standings.drop(other.id)
        if (placement := self._cluster.placement(other.id)) is not None and not placement.node:
            self._standings.add(other)
        else:
            self._reserve(self.told.ticket(other), anyway=True)

    def _over_elsewhere(self, sandbox_id: str) -> None:
        self._standings.drop(sandbox_id)
        if self._others.pop(sandbox_id, None) is not None:
            self._expiring.discard(sandbox_id)
            self._release(sandbox_id)

    def _placed_elsewhere(self, placement: Placement) -> None:
        """What the scheduler refuses another replica takes no room, and waits for some."""
        if (other := self._others.get(placement.sandbox_id)) is None:
            return
        if placement.node:
            self._standings.drop(other.id)
        else:
            self._standings.add(other)
            self._release(other.id)

    def _stands_back(self, start: Ticket) -> bool:
        selector = start.sandbox.spec.node_selector
        return start.sandbox.unclaimed and bool(self.creates_first.why(selector, self._clock.now_ms()))

    def _goes(self, start: Ticket) -> bool:
        """Whether a start may go on to the start queue now."""
        goes = not self._stands_back(start) and (self._fits(start) or self._goes_pending(start))
        if goes:
            self._go_on(start)
        return goes

    def _fits(self, start: Ticket) -> bool:
        """Whether there is room for it besides its owner's starts that have gone on and need the same."""
        room = self._room
        if room is None or start.key in self._refused.values():
            return room is None
        before = self._gone_on[start.sandbox.owner, start.key]
        return room.fit(*where(self._cluster, start), enough=before + 1) > before

    def _go_on(self, start: Ticket) -> None:
        start.goes_on = True
        self._gone_on[start.sandbox.owner, start.key] += 1
        if not start.sandbox.unclaimed:
            self._owned.add(start.sandbox.id, start.sandbox.owner)

    def _reserves(self, start: Ticket) -> None:
        """Takes in that a start has room, or is over."""
        if start.goes_on:
            start.goes_on, kind = False, (start.sandbox.owner, start.key)
            self._gone_on[kind] -= 1
            if not self._gone_on[kind]:
                del self._gone_on[kind]

    def _goes_pending(self, start: Ticket) -> bool:
        if goes := self._pending.takes(start):
            self._pending.add(start)
            self._standings.add(start.sandbox)
            self.short.set()
        return goes

    def _has_room(self, start: Ticket) -> bool:
        room = self._room
        if self._stands_back(start):
            return False
        has = room is None or room.kept(start.sandbox.id) or self._first_reserved(start) or self._goes_pending(start)
        if has:
            self._reserves(start)
        return has

    def _first_reserved(self, start: Ticket) -> bool:
        first = start.goes_on and start.key not in self._refused.values()
        return first and self._reserve(start)

    def _reserve(self, start: Ticket, *, anyway: bool = False) -> bool:
        room = self._room
        return room is None or room.reserve(start.sandbox.id, *where(self._cluster, start), anyway=anyway)

    def _release(self, sandbox_id: str) -> None:
        if (room := self._cluster.room) is not None:
            room.release(sandbox_id)
        self._look_soon()

    def _look_soon(self) -> None:
        self._look_within(LOOK_AFTER_S)

    def _look_within(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        if not (len(self._lines) or len(self._pending)) or (
            self._looking is not None and self._looking.when() <= loop.time() + seconds
        ):
            return
        if self._looking is not None:
            self._looking.cancel()
        self._looking = loop.call_later(seconds, self._look)

    def _look(self) -> None:
        """Lets starts go on, one after the other, as long as there is room for one."""
        self._looking = None
        self._keep_for_pending()
        while (start := self._lines.take(self._goes)) is not None:
            self.told.turn(start.sandbox.owner)
            if start.turn is not None and not start.turn.done():
                start.turn.set_result(None)
        if self.wanting(1):
            self.short.set()
        self._look_within(LOOK_AFTER_S if self._lines.unfinished else LOOK_AGAIN_S)

    def _keep_for_pending(self) -> None:
        """What has a pod is placed before what comes later, so room is kept for it first."""
        now_ms, room = self._clock.now_ms(), self._room
        if room is None:
            return
        for sandbox_id in self._pending.expired(now_ms):
            room.release(sandbox_id)
        for start in self._pending.unpromised():
            if room.fit(*where(self._cluster, start), enough=1) and self._reserve(start):
                self._pending.promise(start, now_ms)
