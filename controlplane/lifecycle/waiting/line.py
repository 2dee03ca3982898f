"""``Line``: where a start waits, from its admission until it may begin: for room on a node, then for a slot.

* For room it waits without a slot, and for a slot without room: it reserves room at the head of the queue for slots,
  when it is about to get one. So a start behind one gate holds nothing that others need.
* What has lost its room by then goes back to its place among those that wait for room.
* One whose slot would take it away from all nodes that have its image gives the slot back for a moment (``NearWaits``).
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from controlplane.cluster import Cluster
from controlplane.lifecycle.record.transition import Transition
from controlplane.lifecycle.waiting.gates.room import RoomGate
from controlplane.lifecycle.waiting.gates.slot import SlotGate
from controlplane.lifecycle.waiting.near_waits import NearWaits
from controlplane.model import Sandbox, SandboxSpec, State


class Line:
    """The starts of this replica that wait, or are under way.

    Attributes:
        room: knows which have room.
        slots: knows which have a slot.
    """

    def __init__(self, cluster: Cluster, room: RoomGate, slots: SlotGate, near: NearWaits) -> None:
        self._cluster = cluster
        self._near = near
        self.room = room
        self.slots = slots

    def on(self, transition: Transition) -> None:
        """Takes in which starts are under way or over, here and elsewhere."""
        self.slots.on(transition)
        self.room.on(transition)

    @asynccontextmanager
    async def turn(
        self, sandbox: Sandbox, spec: SandboxSpec, layers: Mapping[str, int]
    ) -> AsyncIterator[Sequence[str]]:
        """Waits until a start has room and a slot, and holds both; one that was begun elsewhere hardly waits.

        Args:
            sandbox: its record.
            spec: with the image as nodes pull it.
            layers: of that image, with their bytes; empty: not known.

        Yields:
            The nodes to avoid.

        Raises:
            Problem: capacity_unavailable, when there is no time left to start.
        """
        ticket = self.room.ticket(sandbox, lazily=self._cluster.lazy is not None and self._cluster.lazy.takes(spec))

        def gives_back(avoid: Sequence[str]) -> bool:
            waits = not ticket.lazily and sandbox.state is not State.STARTING
            return waits and self._near.waits(sandbox.id, spec, layers, avoid, sandbox.begin_by_ms)

        try:
            while True:
                async with self.room.turn(ticket) as has_room, self.slots.turn(ticket, has_room, gives_back) as avoid:
                    # Others may have taken the room while this one waited for its slot.
                    if avoid is not None and has_room():
                        yield avoid
                        return
        finally:
            self._near.over(sandbox.id)
