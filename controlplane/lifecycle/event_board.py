"""What happens to sandboxes, told to those that listen: from a moment on, each event once."""

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import suppress
from typing import Final

from controlplane.clock import Clock
from controlplane.errors import Problem
from controlplane.lifecycle.record.events import SandboxEvent, events_of, in_order
from controlplane.lifecycle.record.recovering_store import RecoveringStore
from controlplane.lifecycle.record.transition import Transition
from controlplane.model import LIVE, Sandbox, State
from controlplane.model.timeline import MOST_MOMENTS

# Listeners of one replica, and of one owner there: each is a connection, and looks at every change.
MOST_LISTENERS: Final = 256
MOST_OF_ONE: Final = 32
# A listener that is so many events behind is cut off: it comes again with what it has read.
MOST_BEHIND: Final = 16_384
# After so long without an event a listener is told nothing, as a sign of life.
HEARTBEAT_S: Final = 5.0
# Of one sandbox: a record has fewer, and entries of repeated calls replace one another.
MOST_TOLD: Final = 4 * MOST_MOMENTS
# Ended sandboxes whose events are not told again when their records are read again.
MOST_REMEMBERED: Final = 65_536
# Records that are read at a time: others have their turn in between.
AT_A_TIME: Final = 256
# Replicas' clocks may differ by so much: what comes again begins so much before the last event that was read.
OVERLAP_MS: Final = 60_000


class Listener:
    """What one caller has not been told yet.

    Args:
        owner: whose sandboxes; None: everybody's.
        labels: which those have.
        since_ms: nothing from before is told.
    """

    def __init__(self, owner: str | None, labels: Mapping[str, str], since_ms: int) -> None:
        self.owner = owner
        self._labels = labels.items()
        self._since_ms = since_ms
        self._waiting = deque[SandboxEvent]()
        self._more = asyncio.Event()
        self._told: dict[str, dict[str, None]] = {}
        self._over = OrderedDict[str, None]()
        self.cut = False

    def concerns(self, sandbox: Sandbox) -> bool:
        """Whether its events are asked for."""
        return self.owner in (None, sandbox.owner) and self._labels <= sandbox.spec.labels.items()

    def fresh(self, events: Iterable[SandboxEvent]) -> list[SandboxEvent]:
        """Those that were not told, which count as told from now on; no others of ended sandboxes come after these."""
        found, ended = [], []
        for event in events:
            sandbox = event.sandbox
            if sandbox.id in self._over:
                continue
            told = self._told.setdefault(sandbox.id, {})
            if event.id not in told:
                told[event.id] = None
                if len(told) > MOST_TOLD:
                    del told[next(iter(told))]
                found.append(event)
            if sandbox.state is State.ENDED:
                ended.append(sandbox.id)
        for sandbox_id in ended:
            self._told.pop(sandbox_id, None)
            self._over[sandbox_id] = None
        while len(self._over) > MOST_REMEMBERED:
            self._over.popitem(last=False)
        return found

    def on(self, sandbox: Sandbox) -> None:
        """Takes a record in, newer or not."""
        if self.cut or not self.concerns(sandbox):
            return
        self._waiting.extend(self.fresh(events_of(sandbox, self._since_ms)))
        self.cut = len(self._waiting) > MOST_BEHIND
        if self._waiting:
            self._more.set()

    def close(self) -> None:
        """Has it end once what waits is read."""
        self.cut = True
        self._more.set()

    async def next(self) -> list[SandboxEvent]:
        """What has come; nothing for a while is an empty answer. Once it is cut off, only what has come before."""
        if not self._waiting and not self.cut:
            self._more.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(HEARTBEAT_S):
                    await self._more.wait()
        found = [*self._waiting]
        self._waiting.clear()
        return found


class EventBoard:
    """Follows all transitions. Cost: nothing while nobody listens; for each change a look by each that does."""

    def __init__(self, store: RecoveringStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._listeners = set[Listener]()
        self._closed = False

    @property
    def listeners(self) -> int:
        """How many there are."""
        return len(self._listeners)

    def on(self, transition: Transition) -> None:
        """Takes a transition in, made here or elsewhere."""
        for listener in self._listeners:
            listener.on(transition.after)

    def close(self) -> None:
        """Ends all streams, for this replica stops: those that listen go on at another one."""
        self._closed = True
        for listener in self._listeners:
            listener.close()

    async def listen(
        self,
        owner: str | None,
        labels: Mapping[str, str],
        after_ms: int | None,
        *,
        follow: bool,
        of_platform: bool = False,
    ) -> AsyncGenerator[list[SandboxEvent], None]:
        """What happens, from a moment on; an item may be empty, as a sign of life.

        The first item is what has happened until now. It ends where the caller is too slow or this replica stops.

        Args:
            owner: whose sandboxes; None: everybody's.
            labels: which those have.
            after_ms: the last event that was read (Unix ms): it begins a minute before that, so that nothing is lost
                where clocks differ. None: it begins now.
            follow: whether it goes on with what happens from now on.
            of_platform: whether it is this program itself that listens: callers take no place from it.

        Raises:
            Problem: rate_limited, where too many listen; the store does not answer.

        Cost: with ``after_ms`` a read of all that the owner has, and of what has ended since.
        """
        now_ms = self._clock.now_ms()
        since_ms = now_ms if after_ms is None else max(0, after_ms - OVERLAP_MS)
        listener = Listener(owner, labels, since_ms)
        if not of_platform:
            self._check_places(listener)
        self._admit(listener)
        try:
            yield [] if after_ms is None else listener.fresh(await self._past(listener, since_ms))
            while follow and ((events := await listener.next()) or not listener.cut):
                yield events
        finally:
            self._listeners.discard(listener)

    def _check_places(self, listener: Listener) -> None:
        own = sum(1 for one in self._listeners if one.owner == listener.owner)
        if own >= MOST_OF_ONE or len(self._listeners) >= MOST_LISTENERS:
            detail = f"{own} streams of events are open for you here, and {len(self._listeners)} in all"
            raise Problem("rate_limited", f"{detail}: one is enough for all sandboxes", retry_after_ms=5_000)

    def _admit(self, listener: Listener) -> None:
        if self._closed:
            raise Problem("draining", "this control plane is shutting down: another one has the events")
        self._listeners.add(listener)

    async def _past(self, listener: Listener, since_ms: int) -> list[SandboxEvent]:
        found = {one.id: one for one in await self._store.ended_since(since_ms)}
        found |= {one.id: one for one in await self._store.find(listener.owner, {}, LIVE)}
        concerned = [one for one in found.values() if listener.concerns(one)]
        events = []
        for begin in range(0, len(concerned), AT_A_TIME):
            events += in_order(concerned[begin : begin + AT_A_TIME], since_ms)
            await asyncio.sleep(0)
        return sorted(events, key=lambda one: one.at_ms)
