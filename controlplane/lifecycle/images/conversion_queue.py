"""``Conversion``: an image that is to be converted; ``ConversionQueue``: those that wait for the same step of it."""

import asyncio
from collections.abc import Sequence

from controlplane.errors import Problem
from controlplane.images import Converted, Recorded, Reference
from controlplane.lifecycle.images.conversion_order import ConversionOrder
from controlplane.lifecycle.images.copies import Copy
from controlplane.lifecycle.images.flight import Flight


class Conversion(Flight[Converted]):
    """An image that is to be converted, as the starts that wait for it see it.

    Attributes:
        owners: those who want it.
        others: how many other images wait for the same step, or are at it.
        copy: how far it is, once it has its turn.
        made: the converted copy, from which no sandbox has been started yet.
        booting: whether a sandbox is being started from it.
        again: somebody asks for it by name: that no sandbox started from it before is no answer.
        awaited: whether somebody waits for it.
        recorded: what makes its copy a recorded one; None: it is all owners'.
    """

    def __init__(self, source: Reference, owner: str, *, awaited: bool, recorded: Recorded | None = None) -> None:
        super().__init__()
        self.source = source
        self.recorded = recorded
        self.owners = [owner]
        self.others = 0
        self.copy: Copy | None = None
        self.made: Converted | None = None
        self.booting = False
        self.again = False
        self.awaited = awaited
        self._waiting = 0

    @property
    def key(self) -> str:
        """What is converted once."""
        own = "" if self.recorded is None else f" {self.recorded}"
        return f"{key_of(self.source)}{own}"

    @property
    def whose(self) -> str:
        """Whose a recorded copy is; empty: it is all owners'."""
        return "" if self.recorded is None else self.recorded.whose

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
        return self.answer().digest

    async def _wait(self, within_s: float | None) -> None:
        self._waiting, self.awaited = self._waiting + 1, True
        try:
            await asyncio.wait({self.over}, timeout=within_s)
        finally:
            self._waiting -= 1
            self.awaited = bool(self._waiting)

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
        if self.made is not None:
            return "converted, waiting until a sandbox is started from it, to see whether it can"
        if self.copy is not None:
            return str(self.copy.progress)
        return f"waiting, with {self.others} other images"


class ConversionQueue:
    """Conversions that wait for a step, each image once; see ``ConversionOrder`` for which is the next one."""

    def __init__(self) -> None:
        self._order: ConversionOrder[Conversion] = ConversionOrder(lambda one: one.awaited)
        self._at_work: set[Conversion] = set()
        self._more = asyncio.Event()

    def put(self, conversion: Conversion) -> Sequence[Conversion]:
        """Adds a conversion; those that have no place any more, of which it may be one."""
        left = self._order.put(conversion.key, conversion, conversion.owners)
        self._tell()
        return left

    def join(self, conversion: Conversion, owner: str) -> None:
        """One more owner wants what may wait here."""
        if (key := conversion.key) in self._order:
            self._order.join(key, owner)

    async def take(self) -> Conversion:
        """Waits for the next one, and takes it; ``done`` follows."""
        while True:
            if (found := self._order.take()) is not None:
                self._at_work.add(found)
                self._tell()
                return found
            self._more.clear()
            await self._more.wait()

    def done(self, conversion: Conversion) -> None:
        """Ends the step of one that was taken."""
        self._at_work.discard(conversion)

    def _tell(self) -> None:
        for one in self._order.all():
            one.others = len(self._order) - 1 + len(self._at_work)
        self._more.set()


def key_of(source: Reference, whose: str = "") -> str:
    """What is offered once: to all owners, or to one."""
    return f"{source.name}@{source.digest}{whose and f' {whose}'}"
