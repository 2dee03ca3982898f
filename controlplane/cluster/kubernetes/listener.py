"""A listener that gets every death, or every placement, at its own pace."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from typing import Generic, TypeVar

from controlplane.cluster.protocol import Death, Placement

News = TypeVar("News", Death, Placement)


class Listener(Generic[News]):
    """What it has not heard yet; a sandbox stands in it once, so it holds no more than there are.

    Args:
        known: what it begins with.
        newest: whether the last word about a sandbox counts; else the first one.
    """

    def __init__(self, known: Sequence[News], *, newest: bool = False) -> None:
        self._pending: OrderedDict[str, News] = OrderedDict((one.sandbox_id, one) for one in known)
        self._newest = newest
        self._some = asyncio.Event()

    def tell(self, one: News) -> None:
        """Adds news of a sandbox."""
        if self._newest or one.sandbox_id not in self._pending:
            self._pending[one.sandbox_id] = one
        self._some.set()

    async def each(self) -> AsyncIterator[News]:
        """All of them, without end."""
        while True:
            while self._pending:
                yield self._pending.popitem(last=False)[1]
            self._some.clear()
            await self._some.wait()
