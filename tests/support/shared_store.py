"""A store of many replicas without a Redis: one memory, a view for each, news between them, loss on demand.

It passes `StoreSuite` and `ReplicasSuite`, as the store on Redis does.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any

from controlplane.clock import Clock
from controlplane.model import Limits, Sandbox
from controlplane.store import (
    Admission,
    Admitted,
    Changed,
    Claim,
    Claimed,
    Due,
    FeedMessage,
    Fence,
    MemoryStore,
    Rebuild,
    RebuildTurn,
    Resync,
    Slot,
    SlotFreed,
    StoreLostError,
)

ASKED = (
    "get",
    "find",
    "ended_since",
    "by_key",
    "withdraw",
    "counts",
    "usage",
    "recount",
    "warm",
    "lease",
    "note",
    "write_note",
    "append",
    "lines",
)


@dataclass
class SharedMemory:
    """What all views share."""

    clock: Clock
    intact: bool = False
    rebuilder: str = ""
    rebuilder_until_ms: int = 0
    rebuilds: int = 0
    losses: int = 0
    holders: dict[str, str] = field(default_factory=dict)
    feeds: dict[str, asyncio.Queue[FeedMessage]] = field(default_factory=dict)
    away: Exception | None = None

    def __post_init__(self) -> None:
        self.memory = MemoryStore(self.clock)

    def view(self, name: str) -> "SharedStore":
        """What the replica `name` sees."""
        return SharedStore(self, name)

    def empty(self) -> None:
        """Forgets everything, as a Redis without a disk that was restarted."""
        self.intact, self.rebuilder, self.losses = False, "", self.losses + 1
        self.holders.clear()
        for kept in vars(self.memory).values():
            if hasattr(kept, "clear"):
                kept.clear()
        for feed in self.feeds.values():
            feed.put_nowait(Resync())

    def copy(self) -> dict[str, dict[Any, Any]]:
        """What is on record now, for `rewind`."""
        found = {name: kept for name, kept in vars(self.memory).items() if isinstance(kept, dict)}
        # Records never change; what is kept by template is changed in place.
        return {
            name: {key: dict(one) if isinstance(one, dict) else one for key, one in kept.items()}
            for name, kept in found.items()
        }

    def rewind(self, copy: dict[str, dict[Any, Any]]) -> None:
        """Has what it had then, as a Redis that was restarted from a file without what it acknowledged last."""
        self.empty()
        for name, kept in copy.items():
            vars(self.memory)[name].update(kept)

    def tell(self, by: str, news: FeedMessage) -> None:
        """Tells all others."""
        for name, feed in self.feeds.items():
            if name != by:
                feed.put_nowait(news)


class SharedStore(MemoryStore):
    """One replica's view; steps are atomic since they never await anything that waits."""

    shared = True

    def __init__(self, core: SharedMemory, name: str) -> None:
        vars(self).update(vars(core.memory))
        self.core = core
        self.replica = name
        for asked in ASKED:
            setattr(self, asked, self._checked(getattr(self, asked)))

    def _checked(self, step: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def checked(*args: Any, **named: Any) -> Any:
            self._check()
            return await step(*args, **named)

        return checked

    def _check(self) -> None:
        if self.core.away is not None:
            raise self.core.away
        if not self.core.intact:
            raise StoreLostError("the shared memory")

    async def admit(self, sandbox: Sandbox, limits: Limits, fence: Fence | None = None) -> Admission:
        self._check()
        admission = await super().admit(sandbox, limits, fence)
        if isinstance(admission, Admitted):
            self.core.holders[sandbox.id] = self.replica
        return admission

    async def claim(self, wish: Sandbox, limits: Limits) -> Claim | None:
        self._check()
        claim = await super().claim(wish, limits)
        if isinstance(claim, Claimed):
            self._tell(claim.sandbox)
        return claim

    async def replace(self, sandbox: Sandbox, expected_version: int) -> bool:
        self._check()
        before = self._records.get(sandbox.id)
        done = await super().replace(sandbox, expected_version)
        if done:
            if before is None or before.state is not sandbox.state:
                self.core.holders[sandbox.id] = self.replica
            self._tell(sandbox)
            self._wake()
        return done

    async def restore(self, sandbox: Sandbox) -> bool:
        restored = await super().restore(sandbox)
        if restored:
            self.core.holders[sandbox.id] = self.replica
            self._tell(sandbox)
        return restored

    async def take_slot(self, *asked: Any, **named: Any) -> Slot:
        self._check()
        return await super().take_slot(*asked, **named)

    async def place_slot(
        self, sandbox_id: str, node: str, until_ms: int, per_node: int = 0, placement_key: str = ""
    ) -> None:
        self._check()
        await super().place_slot(sandbox_id, node, until_ms, per_node, placement_key)
        self._wake()

    async def free_slot(self, sandbox_id: str) -> None:
        await super().free_slot(sandbox_id)
        self._wake()

    async def due(self, now_ms: int, unconfirmed_before_ms: int) -> Due:
        self._check()
        due = await super().due(now_ms, unconfirmed_before_ms)
        unready = [one for one in self._records.values() if one.state.unready and one.start_by_ms > now_ms]
        return replace(due, abandoned=tuple(one.id for one in unready if not self._here(one.id, now_ms)))

    async def feed(self) -> AsyncIterator[FeedMessage]:
        feed: asyncio.Queue[FeedMessage] = asyncio.Queue()
        self.core.feeds[self.replica] = feed
        yield Resync()
        while True:
            yield await feed.get()

    async def claim_rebuild(self, ttl_ms: int) -> Rebuild:
        return Rebuild(self._rebuild_turn(ttl_ms), str(self.core.losses))

    def _rebuild_turn(self, ttl_ms: int) -> RebuildTurn:
        if self.core.intact:
            return RebuildTurn.INTACT
        now_ms = self.core.clock.now_ms()
        if self.core.rebuilder not in ("", self.replica) and now_ms < self.core.rebuilder_until_ms:
            return RebuildTurn.THEIRS
        self.core.rebuilder, self.core.rebuilder_until_ms = self.replica, now_ms + ttl_ms
        return RebuildTurn.OURS

    def _is_intact(self) -> bool:
        return self.core.intact

    async def rebuilt(self, content_id: str) -> bool:
        if content_id != str(self.core.losses):
            return False
        self.core.intact = True
        self.core.rebuilder = ""
        self.core.rebuilds += 1
        return True

    def _here(self, sandbox_id: str, now_ms: int) -> bool:
        _, until_ms = self._leases.get(f"replica:{self.core.holders.get(sandbox_id)}", ("", 0))
        return until_ms > now_ms

    def _wake(self) -> None:
        """Tells those that may have a slot now."""
        for replica, key in self._slots.wake(self.core.clock.now_ms()):
            if (feed := self.core.feeds.get(replica)) is not None:
                feed.put_nowait(SlotFreed(key))

    def _tell(self, sandbox: Sandbox) -> None:
        if sandbox.told:
            self.core.tell(self.replica, Changed(sandbox, self.core.clock.now_ms()))
