"""``Listener``: a queue with which one consumer gets every death, or every placement, at its own pace."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from typing import Generic, TypeVar

from controlplane.cluster.protocol import Death, Placement

Change = TypeVar("Change", Death, Placement)


class Listener(Generic[Change]):
    """A queue of events that holds at most one event per sandbox, so its size is bounded by the number of sandboxes.

    Args:
        known: the initial events.
        newest: whether a later event of a sandbox replaces one that is queued; else the first one stays.
    """

    def __init__(self, known: Sequence[Change], *, newest: bool = False) -> None:
        self._pending: OrderedDict[str, Change] = OrderedDict((one.sandbox_id, one) for one in known)
        self._newest = newest
        self._some = asyncio.Event()

    def notify(self, one: Change) -> None:
        """Adds an event."""
        if self._newest or one.sandbox_id not in self._pending:
            self._pending[one.sandbox_id] = one
        self._some.set()

    async def each(self) -> AsyncIterator[Change]:
        """Yields all events, without end."""
        while True:
            while self._pending:
                yield self._pending.popitem(last=False)[1]
            self._some.clear()
            await self._some.wait()
