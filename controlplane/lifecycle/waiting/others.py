"""Which creates wait at which replica: each writes its own into a note that all read.

The note decides nothing; it tells callers where they stand.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field
from typing import Any, Final

from controlplane.clock import Clock
from controlplane.lifecycle.record.recovering_store import RecoveringStore
from controlplane.lifecycle.waiting.create_queue import CreateQueue
from controlplane.lifecycle.waiting.waiting_create import WaitingCreate

NOTE: Final = "creates that wait"
# What a replica has written holds so long after that.
HOLDS_MS: Final = 5_000
# Places of one owner that are told, and of all owners at one replica; the rest is counted.
MOST_PLACES: Final = 100
MOST_TOLD: Final = 400
TRIES: Final = 5


@dataclass(frozen=True, slots=True)
class Place:
    """A create that waits, at whichever replica.

    Attributes:
        key: its idempotency key.
        waits_for: the limit that the first one of its owner waits for.
        until_ms: when it is refused.
        estimate_ms: how long it will wait, by its replica's pace; None: not known.
        used: of what it waits for, in use when it was tried last.
        limit: of the same.
    """

    key: str | None
    labels: Mapping[str, str]
    waits_for: str
    since_ms: int
    until_ms: int
    estimate_ms: int | None
    used: int
    limit: int

    @classmethod
    def of(cls, one: WaitingCreate, estimate_ms: int | None) -> "Place":
        """From a create that waits here."""
        wish, full = one.wish, one.full
        labels = dict(wish.spec.labels)
        times = one.since_ms, one.until_ms, estimate_ms
        return cls(wish.idempotency_key, labels, full.resource, *times, full.used, full.limit)


@dataclass(frozen=True, slots=True)
class Line:
    """An owner's creates that wait.

    Attributes:
        count: how many.
        places: the first of them, in order.
    """

    count: int = 0
    places: Sequence[Place] = field(default_factory=list)


class Lines:
    """The lines of all replicas; ``run`` tells this one's.

    Args:
        queue: has this replica's.
        store: has the note, if it is shared; else there are no other replicas.
        replica: this control plane's name.
    """

    def __init__(self, queue: CreateQueue, store: RecoveringStore, clock: Clock, replica: str) -> None:
        self._queue = queue
        self._store = store
        self._clock = clock
        self._replica = replica
        self._told = False

    async def of(self, owner: str) -> Line:
        """An owner's creates that wait, at all replicas, in the order in which they came.

        Raises:
            Problem: the store does not answer.
        """
        here = self._here(owner)
        if not self._store.shared:
            return here
        others = _read(await self._store.note(NOTE), self._clock.now_ms(), self._replica).values()
        lines = [here, *(_line(one["owners"].get(owner)) for one in others)]
        places = sorted((place for line in lines for place in line.places), key=lambda place: place.since_ms)
        return Line(sum(line.count for line in lines), places[:MOST_PLACES])

    async def turn(self) -> None:
        """Tells what waits here. Cost: no call while nothing does; else two calls to the store.

        Raises:
            Problem: the store does not answer.
        """
        own = self._own()
        if not own and not self._told:
            return

        def told(before: str) -> str:
            now_ms = self._clock.now_ms()
            all_told = dict(_read(before, now_ms, self._replica))
            if own:
                all_told[self._replica] = {"at_ms": now_ms, "owners": own}
            return json.dumps(all_told) if all_told else ""

        if await self._store.change_note(NOTE, told, HOLDS_MS, tries=TRIES):
            self._told = bool(own)

    def _own(self) -> dict[str, Any]:
        told: dict[str, Any] = {}
        left = MOST_TOLD
        for owner in self._queue.owners():
            line = self._here(owner)
            told[owner] = [line.count, [astuple(place) for place in line.places[:left]]]
            left -= len(told[owner][1])
        return told

    def _here(self, owner: str) -> Line:
        waiting = self._queue.waiting(owner)
        first = enumerate(waiting[:MOST_PLACES], start=1)
        return Line(len(waiting), [Place.of(one, self._queue.wait_ms(owner, position)) for position, one in first])


def _read(text: str, now_ms: int, own: str) -> Mapping[str, Any]:
    """What other replicas have told and still holds; nothing of a note that another version has written otherwise."""
    try:
        return {
            replica: one
            for replica, one in json.loads(text or "{}").items()
            if replica != own and now_ms - one["at_ms"] < HOLDS_MS and isinstance(one["owners"], dict)
        }
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}


def _line(told: Any) -> Line:  # noqa: ANN401 - JSON
    try:
        return Line() if told is None else Line(int(told[0]), [Place(*one) for one in told[1]])
    except (ValueError, TypeError, IndexError, KeyError):
        return Line()
