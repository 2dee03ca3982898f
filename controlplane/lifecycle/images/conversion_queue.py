"""``ConversionQueue``: images that are to be converted, in the order in which they are."""

import asyncio
from collections import OrderedDict
from typing import Final

from controlplane.errors import Problem
from controlplane.images import Converted, Reference
from controlplane.lifecycle.images.copies import Copy

# Images that wait, of each kind: those that somebody waits for, and all others.
MOST_WAITING: Final = 256
# Of so many turns one is of an image that nobody waits for.
TURNS: Final = 4


class Conversion:
    """An image that is to be converted, as the starts that wait for it see it.

    Attributes:
        ahead: how many are converted before it, of one that a start waits for.
        copy: how far it is, once it has its turn.
        booting: whether a sandbox is being started from it.
        again: somebody asks for it by name: that no sandbox started from it before is no answer.
        waiting, asked: how many wait for it; whether anybody has.
    """

    def __init__(self, source: Reference) -> None:
        self.source = source
        self.ahead = 0
        self.copy: Copy | None = None
        self.booting = False
        self.again = False
        self.waiting, self.asked = 0, False
        self.over: asyncio.Future[Converted | Problem] = asyncio.get_running_loop().create_future()

    async def soon(self, within_s: float) -> bool:
        """Waits a moment; whether it is over."""
        await self._wait(within_s)
        return self.over.done()

    async def digest(self) -> str:
        """Waits until it is over; the digest of the converted copy, from which a sandbox has started.

        Raises:
            Problem: why there is none.
        """
        await self._wait(None)
        answer = self.over.result()
        if isinstance(answer, Problem):
            # A new one for each: an exception collects the tracebacks of all that raise it.
            raise Problem(answer.code, answer.detail, retry_after_ms=answer.retry_after_ms, **answer.details)
        return answer.digest

    async def _wait(self, within_s: float | None) -> None:
        self.waiting, self.asked = self.waiting + 1, True
        try:
            await asyncio.wait({self.over}, timeout=within_s)
        finally:
            self.waiting -= 1

    def overdue(self) -> Problem:
        """The error of a start whose deadline has passed while it waited for this conversion."""
        detail = f"pull lazy: {self.source} was not converted in time: {self.progress}"
        if self.copy is not None and self.copy.trouble is not None:
            return Problem(self.copy.trouble.code, f"{detail}: {self.copy.trouble.detail}")
        return Problem("start_timeout", detail)

    @property
    def progress(self) -> str:
        """How far it is, for people."""
        if self.booting:
            return "a sandbox is started from it, to see whether it can"
        if self.copy is not None:
            return str(self.copy.progress)
        return f"waiting, {self.ahead} are converted before it"


class ConversionQueue:
    """Those that somebody waits for, then all others, which get a turn now and then.

    What nobody waits for any more is one of the others again.

    Attributes:
        now: the one that has its turn.
        more: set when there is one to take.
    """

    def __init__(self) -> None:
        self.now: Conversion | None = None
        self.more = asyncio.Event()
        self._awaited: OrderedDict[str, Conversion] = OrderedDict()
        self._behind: OrderedDict[str, Conversion] = OrderedDict()
        self._turns = 0

    def awaited(self, source: Reference) -> Conversion:
        """The conversion of an image, begun unless it is under way; somebody waits for it.

        Args:
            source: with a digest; its plain copy is there.

        Raises:
            Problem: capacity_unavailable: too many are waited for.
        """
        key = key_of(source)
        if (known := self._under_way(key)) is not None:
            return known
        if key not in self._awaited:
            if len(self._awaited) >= MOST_WAITING:
                self._demote()
            if len(self._awaited) >= MOST_WAITING:
                raise Problem("capacity_unavailable", f"pull lazy: {MOST_WAITING} images wait to be converted already")
            self._awaited[key] = self._behind.pop(key) if key in self._behind else Conversion(source)
        self._queued()
        return self._awaited[key]

    def behind(self, source: Reference) -> bool:
        """Has an image converted for later starts; False: too many wait."""
        key = key_of(source)
        if self._under_way(key) is not None or key in self._awaited or key in self._behind:
            return True
        if len(self._behind) >= MOST_WAITING:
            return False
        self._behind[key] = Conversion(source)
        self._queued()
        return True

    async def take(self) -> Conversion:
        """Wait for the next conversion, remove it from the queue and return it."""
        self.now = None
        while True:
            self._demote()
            self._turns += 1
            queues = (self._behind, self._awaited) if self._turns % TURNS == 0 else (self._awaited, self._behind)
            if queue := queues[0] or queues[1]:
                _, self.now = queue.popitem(last=False)
                self._queued()
                return self.now
            self.more.clear()
            await self.more.wait()

    def close(self, why: Problem) -> None:
        """Answers every start that waits."""
        for one in (*([self.now] if self.now else ()), *self._awaited.values(), *self._behind.values()):
            if not one.over.done():
                one.over.set_result(why)

    def _under_way(self, key: str) -> Conversion | None:
        return self.now if self.now is not None and key_of(self.now.source) == key else None

    def _demote(self) -> None:
        """Puts those that nobody waits for any more to the others; what finds no room there is given up."""
        for key, one in [*self._awaited.items()]:
            if not one.waiting and one.asked:
                del self._awaited[key]
                if len(self._behind) < MOST_WAITING:
                    self._behind[key] = one
                else:
                    one.over.set_result(Problem("capacity_unavailable", "too many images wait to be converted"))

    def _queued(self) -> None:
        for ahead, one in enumerate(self._awaited.values(), start=int(self.now is not None)):
            one.ahead = ahead
        self.more.set()


def key_of(source: Reference) -> str:
    """What is converted once."""
    return f"{source.name}@{source.digest}"
