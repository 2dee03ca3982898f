"""``RegistryStore``: how full the private registry is, and which of its copies are used, as starts see it."""

import asyncio
from collections import OrderedDict
from contextlib import suppress
from typing import Final

import structlog

from controlplane.clock import Clock
from controlplane.errors import Problem
from controlplane.images import Collector, CopyStore

# How long an answer holds: starts of a herd ask once.
ROOM_MS: Final = 5_000
# While the collector does not answer nobody waits for it anew.
AWAY_MS: Final = 15_000
# Uses that nobody waits for are told so often, and no more of them are remembered; the oldest go first.
NOTED_EVERY_S: Final = 15.0
MOST_NOTED: Final = 32_768
# So long they are told when the process ends.
CLOSE_WITHIN_S: Final = 1.0


class RegistryStore:
    """Asks the private registry's collector for starts.

    Without a collector, or while it does not answer, no registry is full and every copy is there: a start then fails as
    it would without all this, with what the registry itself says. Uses of that time are told once it answers.

    Args:
        collector: None: the registry is one that somebody else looks after.
        clock: the time of day.
        copies: is told of uses; None: the collector, if there is one.

    Attributes:
        copies: who is told of uses, and knows the recorded copies; None: nobody.
    """

    def __init__(self, collector: Collector | None, clock: Clock, copies: CopyStore | None = None) -> None:
        self._collector = collector
        self.copies = copies or collector
        self._clock = clock
        self._full = False
        self._until_ms = 0
        # Of either question: one that is slow says nothing of the other.
        self._away_until_ms = {"room": 0, "use": 0}
        self._asking = asyncio.Lock()
        self._wanted = asyncio.Event()
        self._untold: OrderedDict[tuple[str, str], None] = OrderedDict()
        self._noted = asyncio.Event()
        self._log = structlog.get_logger("images")

    async def full(self, *, now: bool = False) -> bool:
        """Whether nothing more is to be put there. Cost: a call in five seconds.

        Args:
            now: an answer of a moment ago will not do.
        """
        if self._collector is None:
            return False
        async with self._asking:
            if now or self._clock.now_ms() >= max(self._until_ms, self._away_until_ms["room"]):
                try:
                    self._full = (await self._collector.room()).full
                except Problem as problem:
                    self._away("room", "whether the private registry is full is not known", problem)
                    self._full = False
                self._until_ms = self._clock.now_ms() + ROOM_MS
        if self._full:
            self._wanted.set()
        return self._full

    async def use(self, repository: str, digest: str) -> bool:
        """Notes that a copy is used, so that it is not removed for a while; whether it is there."""
        if self.copies is None:
            return True
        if self._clock.now_ms() >= self._away_until_ms["use"]:
            try:
                return await self.copies.use(repository, digest)
            except Problem as problem:
                self._away("use", "the use of a copy is noted later", problem)
        self.note(repository, digest)
        return True

    def note(self, repository: str, digest: str) -> None:
        """Notes that a copy is used, soon: nobody waits for it."""
        if self.copies is None:
            return
        self._untold[repository, digest] = None
        self._untold.move_to_end((repository, digest))
        if len(self._untold) > MOST_NOTED:
            self._untold.popitem(last=False)
        self._noted.set()

    async def tell(self) -> None:
        """Tells what is noted, unless nobody takes it. Cost: a call for each copy."""
        while self.copies is not None and self._untold and self._clock.now_ms() >= self._away_until_ms["use"]:
            copy = next(iter(self._untold))
            try:
                await self.copies.use(*copy)
            except Problem as problem:
                self._away("use", "uses of copies are noted later", problem)
            else:
                self._untold.pop(copy, None)
        if not self._untold:
            self._noted.clear()

    async def close(self) -> None:
        """Tells what is noted, as far as there is time; ``run`` has ended. Cost: ``CLOSE_WITHIN_S``."""
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_WITHIN_S):
                await self.tell()

    async def run(self) -> None:
        """Tells what is noted, again and again, until it is cancelled."""
        while True:
            await self._noted.wait()
            await asyncio.sleep(NOTED_EVERY_S)
            await self.tell()

    def found_full(self) -> None:
        """Takes in that something was not stored for want of room, and has the registry cleaned up at once."""
        if self._collector is not None:
            self._wanted.set()

    async def wanted(self) -> None:
        """Waits until the registry is to be cleaned up at once."""
        await self._wanted.wait()
        self._wanted.clear()

    def _away(self, question: str, what: str, problem: Problem) -> None:
        if self._clock.now_ms() >= self._away_until_ms[question]:
            self._log.warning(what, code=problem.code, detail=problem.detail)
        self._away_until_ms[question] = self._clock.now_ms() + AWAY_MS
