"""What starts that wait for room are told: where they stand, and why no node has room for them."""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from controlplane.capacity import Amounts, Room
from controlplane.clock import Clock
from controlplane.cluster import Cluster
from controlplane.errors import Problem
from controlplane.lifecycle.waiting.pace import Pace
from controlplane.lifecycle.waiting.scheduler_words import plain
from controlplane.lifecycle.waiting.standings import Standings
from controlplane.lifecycle.waiting.ticket import Ticket
from controlplane.lifecycle.waiting.told import Position, RoomPlace
from controlplane.model import Sandbox

# Of the callers that were refused last it is known what they were told.
MOST_REFUSALS: Final = 1_000
# What the nodes have left is told anew only so often: a herd whose deadline comes asks at once.
TOLD_MS: Final = 1_000


def known_room(cluster: Cluster) -> Room | None:
    """What is free on the nodes; None: it is not known now."""
    room = cluster.room
    return room if room is not None and room.known else None


def where(cluster: Cluster, start: Ticket) -> tuple[Amounts, Mapping[str, str], Collection[str]]:
    """What it requests, the labels of its nodes, and which nodes it may not come to all the same."""
    spec = start.sandbox.spec
    lazy = cluster.lazy if start.lazily else None
    off = frozenset[str]() if lazy is None else lazy.kept_off(spec)
    return start.request, spec.node_selector, off


class RoomTold:
    """Answers for the starts of all replicas.

    Args:
        cluster: knows what is free, and what the scheduler says.
        clock: the time of day.
        standings: which starts wait, here and at other replicas.
        refused: the placement keys of the starts here that the scheduler refuses, by sandbox.
        waiters: the starts of this replica, by sandbox.
    """

    def __init__(
        self,
        cluster: Cluster,
        clock: Clock,
        standings: Standings,
        refused: Mapping[str, str],
        waiters: Mapping[str, Ticket],
    ) -> None:
        self._cluster = cluster
        self._clock = clock
        self._standings = standings
        self._refused = refused
        self._waiters = waiters
        self._refusals: dict[str, Problem] = {}
        self._paces: dict[str, Pace] = {}
        self._told: dict[str, tuple[int, str]] = {}

    def ticket(self, sandbox: Sandbox) -> Ticket:
        """A start of this replica, or of another one."""
        lazily = sandbox.image_pulled == "lazy"
        return self._waiters.get(sandbox.id) or Ticket(sandbox, self._cluster.request(sandbox.spec), 0, lazily)

    def joined(self, owner: str) -> None:
        """Takes in that a start of this owner waits."""
        self._paces.setdefault(owner, Pace())

    def turn(self, owner: str) -> None:
        """Takes in that a start of this owner goes on."""
        self._paces[owner].turn(self._clock.now_ms())

    def clear(self) -> None:
        """Takes in that none waits here any more."""
        self._paces.clear()
        self._told.clear()

    def place(self, sandbox: Sandbox) -> RoomPlace | None:
        """Where a start stands, whichever replica's it is; None: it does not wait for room."""
        return self._place(sandbox) if sandbox.id in self._standings else None

    def waiting(self, owner: str | None = None) -> Sequence[Sandbox]:
        """The starts that wait for room at all replicas, of one owner or of all, oldest first."""
        found = [one for one in self._standings.all() if owner in (None, one.owner)]
        return sorted(found, key=lambda one: (one.created_at_ms, one.id))

    def refuse(self, sandbox: Sandbox) -> Problem:
        """Takes in that a start that waits is refused at its deadline; what its caller is told."""
        now_ms = self._clock.now_ms()
        refusal = self._place(sandbox, refused=True).problem(now_ms)
        self._standings.refuse(sandbox, now_ms)
        self._refusals[sandbox.id] = refusal
        if len(self._refusals) > MOST_REFUSALS:
            del self._refusals[next(iter(self._refusals))]
        return refusal

    def refusal(self, sandbox_id: str) -> Problem | None:
        """What the caller of a start was told that was refused here lately."""
        return self._refusals.get(sandbox_id)

    def _place(self, sandbox: Sandbox, *, refused: bool = False) -> RoomPlace:
        now_ms = self._clock.now_ms()
        position, waiting = self._standings.number(sandbox, now_ms, refused=refused)
        pace = self._paces.get(sandbox.owner)
        estimate_ms = None if pace is None else pace.wait_ms(position, now_ms)
        place = Position(sandbox.owner, position, waiting, estimate_ms)
        return RoomPlace(sandbox, place, self._why(self.ticket(sandbox)))

    def _why(self, start: Ticket) -> str:
        now_ms = self._clock.now_ms()
        if said := self._said(start):
            return said
        at_ms, told = self._told.get(start.key, (0, ""))
        if not told or not 0 <= now_ms - at_ms < TOLD_MS:
            told = self._tell(start)
            self._told[start.key] = (now_ms, told)
        return told

    def _said(self, start: Ticket) -> str:
        """Why the scheduler does not place its pod although there is room; empty: it does, or there is none."""
        placement, room = self._cluster.placement(start.sandbox.id), known_room(self._cluster)
        refused = placement is not None and not placement.node and placement.why
        if not refused or (room is not None and not room.fit(*where(self._cluster, start), enough=1)):
            return ""
        return f"the scheduler finds no node for it: {plain(refused)}"

    def _tell(self, start: Ticket) -> str:
        room, asked = known_room(self._cluster), where(self._cluster, start)
        if room is None:
            return "what is free on the nodes is not known"
        refused = next((one for one, key in self._refused.items() if key == start.key), None)
        if refused is not None and room.fit(*asked, enough=1):
            return f"the scheduler finds no node for {refused}, which requests the same"
        return room.tell(*asked)
