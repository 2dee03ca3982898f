"""The newest sandboxes of an owner, read for searches that no index helps with, at a bounded share of a processor."""

import asyncio
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final
from weakref import WeakValueDictionary

from controlplane.clock import Clock
from controlplane.lifecycle.record.recovering_store import RecoveringStore
from controlplane.model import Sandbox, State
from controlplane.store import Page

MOST_SEARCHED: Final = 10_000
READ_AT_ONCE: Final = 1_000
# What one reading may take; then those that were read have to do.
READS_FOR_MS: Final = 2_000
# A reading serves searches for so many times what it took, so that they cost a twentieth of a processor at most.
SERVES_TIMES: Final = 20
SERVES_AT_LEAST_MS: Final = 3_000
# Of different owners, or of different choices of states.
READINGS_AT_ONCE: Final = 2

_What = tuple[str, frozenset[State]]


@dataclass(frozen=True, slots=True)
class Reading:
    """What was read.

    Attributes:
        page: the newest first.
        at_ms: when it was begun, in Unix time.
        until_ms: so long it serves.
    """

    page: Page
    at_ms: int
    until_ms: int


class Searches:
    """Keeps readings as long as they serve. The same search waits for one that is under way; other owners' do not."""

    def __init__(self, store: RecoveringStore, clock: Clock) -> None:
        self._store, self._clock = store, clock
        self._kept: dict[_What, Reading] = {}
        self._reading = WeakValueDictionary[_What, asyncio.Lock]()
        self._free = asyncio.Semaphore(READINGS_AT_ONCE)

    async def newest(self, owner: str, states: Collection[State]) -> Reading:
        """The newest of an owner's sandboxes in these states, as they were a moment ago.

        Args:
            owner: whose.
            states: any of them.

        Raises:
            Problem: the store does not answer.

        Cost: a page of ``READ_AT_ONCE`` after the other, for at most ``READS_FOR_MS`` and one page; nothing while the
        last reading serves.
        """
        what = (owner, frozenset(states))
        lock = self._reading.setdefault(what, asyncio.Lock())
        async with lock:
            now_ms = self._clock.now_ms()
            self._kept = {key: kept for key, kept in self._kept.items() if kept.until_ms > now_ms}
            if what not in self._kept:
                async with self._free:
                    self._kept[what] = await self._read(*what)
            return self._kept[what]

    async def _read(self, owner: str, states: frozenset[State]) -> Reading:
        began_ms = self._clock.now_ms()
        found: dict[str, Sandbox] = {}
        for offset in range(0, MOST_SEARCHED, READ_AT_ONCE):
            page = await self._store.page(owner, states, offset, READ_AT_ONCE)
            # One that was made meanwhile moves others to the next page.
            found |= {one.id: one for one in page.sandboxes}
            took_ms = self._clock.now_ms() - began_ms
            if took_ms >= READS_FOR_MS or offset + READ_AT_ONCE >= sum(page.counts[state] for state in states):
                break
        serves_ms = max(SERVES_AT_LEAST_MS, SERVES_TIMES * took_ms)
        return Reading(Page([*found.values()], page.counts), began_ms, began_ms + took_ms + serves_ms)
