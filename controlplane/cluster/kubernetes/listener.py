"""One who wants to hear of every death, at his own pace."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence

from controlplane.cluster.protocol import Death


class Listener:
    """What it has not heard yet; a sandbox stands in it once, so it holds no more than there are."""

    def __init__(self, known: Sequence[Death]) -> None:
        self._pending = OrderedDict((one.sandbox_id, one) for one in known)
        self._some = asyncio.Event()

    def tell(self, one: Death) -> None:
        """Adds a death; the first cause stays."""
        self._pending.setdefault(one.sandbox_id, one)
        self._some.set()

    async def each(self) -> AsyncIterator[Death]:
        """All of them, without end."""
        while True:
            while self._pending:
                yield self._pending.popitem(last=False)[1]
            self._some.clear()
            await self._some.wait()
