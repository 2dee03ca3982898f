"""The route feed to the gateways: where sandboxes are and why they ended, as one snapshot, then deltas."""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Final

from controlplane.clock import Clock
from controlplane.errors import Problem
from controlplane.lifecycle.record.transition import Effect, Transition
from controlplane.lifecycle.tokens import SigningKey
from controlplane.model import Sandbox
from controlplane.wire import routes_pb2 as wire

# A gateway that is this many updates behind is disconnected, and gets a new snapshot when it reconnects.
MAX_BEHIND: Final = 4096
# Of a snapshot; gRPC takes 4 MiB by default. One route or end more may go over it, with some KiB.
MAX_MESSAGE_BYTES: Final = 2 << 20
# The most routes and ends of several deltas that are merged into one message.
TOGETHER: Final = 512
MAX_ENDS: Final = 86_400
ENDS_KEPT_MS: Final = 24 * 3_600_000
MAX_DETAIL_CHARS: Final = 300
# Of the details of an end, names and values together: gateways keep the ends of a day.
MAX_DETAILS_BYTES: Final = 512


# Details that an end has in fields of its own.
_OF_THE_END: Final = frozenset({"sandbox_id", "ended_at_ms"})


class Subscription:
    """The updates that one gateway has not been sent yet."""

    def __init__(self, first: list[wire.Update]) -> None:
        self._waiting = deque(first)
        self._more = asyncio.Event()
        self._room = len(first) + MAX_BEHIND
        self.cut = False

    def push(self, update: wire.Update) -> None:
        """Adds an update; when the buffer is full it sets ``cut`` instead, so that the buffer stays bounded."""
        if len(self._waiting) >= self._room:
            self.cut = True
        else:
            self._waiting.append(update)
            self._more.set()

    async def next(self) -> wire.Update:
        """Waits for the next update, in order. Deltas that wait are merged: a message costs more than a route."""
        while not self._waiting:
            self._more.clear()
            await self._more.wait()
        together = [self._waiting.popleft()]
        entries = _entries(together[0])
        while self._waiting and (entries := entries + _entries(self._waiting[0])) <= TOGETHER:
            together.append(self._waiting.popleft())
        return together[0] if len(together) == 1 else _merged(together)


class RouteBoard:
    """All routes and the recent ends. Changing it never blocks; every subscription gets every change."""

    def __init__(self, clock: Clock, key: SigningKey) -> None:
        self._clock = clock
        self._key = key
        self._routes: dict[str, wire.Route] = {}
        self._ends: OrderedDict[str, wire.EndOfSandbox] = OrderedDict()
        self._subscribers: set[Subscription] = set()
        self.version = 0

    @property
    def subscribers(self) -> int:
        """How many gateways are subscribed."""
        return len(self._subscribers)

    def ended(self, sandbox_id: str) -> bool:
        """Whether its end is known here."""
        return sandbox_id in self._ends

    def on(self, transition: Transition) -> None:
        """Publishes the route or the end that follows from a transition."""
        if Effect.UNROUTE in transition.effects:
            self.withdraw(transition.after)
        elif Effect.ROUTE in transition.effects:
            self.publish(transition.after)

    def publish(self, sandbox: Sandbox) -> None:
        """Publishes a sandbox's address and public ports, unless these or its end are published already."""
        known = self._routes.get(sandbox.id)
        if sandbox.id in self._ends or (known is not None and _describes(known, sandbox)):
            return
        route = wire.Route(
            sandbox_id=sandbox.id,
            address=sandbox.address or "",
            generation=sandbox.generation,
            owner=sandbox.owner,
            ports_revision=sandbox.ports_revision,
            public_ports=[
                wire.PublicPort(port=port, token=self._key.port_token(sandbox, port).text)
                for port in sandbox.public_ports
            ],
            draining_at_ms=sandbox.drained_by_ms or 0,
        )
        self._routes[sandbox.id] = route
        self._send(wire.Delta(routes=[route]))

    def withdraw(self, sandbox: Sandbox) -> None:
        """Publishes the end of a sandbox, whether it had a route or not, unless it is published already.

        Raises:
            ValueError: it has no end.
        """
        if sandbox.end is None:
            raise ValueError(f"{sandbox.id} has no end to announce")
        if sandbox.id in self._ends:
            return
        end = wire.EndOfSandbox(
            sandbox_id=sandbox.id,
            generation=sandbox.generation,
            cause=sandbox.end.cause,
            detail=sandbox.end.detail[:MAX_DETAIL_CHARS],
            at_ms=sandbox.end.at_ms,
            details=_details(sandbox.end.problem(sandbox)),
        )
        self._routes.pop(sandbox.id, None)
        self._ends[sandbox.id] = end
        self._forget()
        self._send(wire.Delta(ends=[end]))

    @contextmanager
    def subscribe(self) -> Iterator[Subscription]:
        """A subscription that begins with the snapshot of this instant."""
        subscription = Subscription(self._first())
        self._subscribers.add(subscription)
        try:
            yield subscription
        finally:
            self._subscribers.discard(subscription)

    def _first(self) -> list[wire.Update]:
        self._forget()
        return [wire.Update(version=self.version, snapshot=part) for part in self._parts()]

    def _parts(self) -> Iterator[wire.Snapshot]:
        """The snapshot, in messages of a bounded size; all but the last say that there is more."""
        part, size_bytes = wire.Snapshot(), 0
        routes = (wire.Snapshot(routes=[route]) for route in self._routes.values())
        ends = (wire.Snapshot(ends=[end]) for end in self._ends.values())
        for entry in chain(routes, ends):
            if size_bytes >= MAX_MESSAGE_BYTES:
                part.more = True
                yield part
                part, size_bytes = wire.Snapshot(), 0
            part.MergeFrom(entry)
            size_bytes += entry.ByteSize()
        yield part

    def _send(self, delta: wire.Delta) -> None:
        self.version += 1
        update = wire.Update(version=self.version, delta=delta, changed_at_ms=self._clock.now_ms())
        for subscription in self._subscribers:
            subscription.push(update)

    def _forget(self) -> None:
        oldest_ms = self._clock.now_ms() - ENDS_KEPT_MS
        while self._ends:
            first = next(iter(self._ends.values()))
            if first.at_ms > oldest_ms and len(self._ends) <= MAX_ENDS:
                break
            self._ends.popitem(last=False)


def _describes(route: wire.Route, sandbox: Sandbox) -> bool:
    """Whether a route has what the record has, or newer public ports."""
    same = (route.address, route.generation, route.owner, route.draining_at_ms) == (
        sandbox.address or "",
        sandbox.generation,
        sandbox.owner,
        sandbox.drained_by_ms or 0,
    )
    return same and route.ports_revision >= sandbox.ports_revision


def _details(problem: Problem) -> dict[str, str]:
    """Those of an end that gateways tell, its reason before all others, as many as there is room for."""
    told, room_bytes = {}, MAX_DETAILS_BYTES
    for name, value in sorted(problem.details.items(), key=lambda pair: (pair[0] != "reason", pair)):
        size_bytes = len(f"{name}{value}".encode())
        if name not in _OF_THE_END and size_bytes <= room_bytes:
            told[name], room_bytes = value, room_bytes - size_bytes
    return told


def _entries(update: wire.Update) -> int:
    """How many routes and ends a delta has; a snapshot counts as a full message, so it is never merged."""
    if not update.HasField("delta"):
        return TOGETHER
    return len(update.delta.routes) + len(update.delta.ends)


def _merged(deltas: Sequence[wire.Update]) -> wire.Update:
    """One delta with the effect of all of these. Their order does not matter: the end of a sandbox is final."""
    merged = wire.Update(version=deltas[-1].version, changed_at_ms=deltas[0].changed_at_ms)
    for one in deltas:
        merged.delta.MergeFrom(one.delta)
    return merged
