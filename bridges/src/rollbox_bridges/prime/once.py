"""Calls that have an id of their own: one that is repeated waits for the first one, and is not applied again."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from typing import Any, Final

# As many ids are kept, and as long as a client may repeat a call, which takes three times 30 s and the time between.
_MOST: Final = 10_000
_KEPT_S: Final = 120.0


class Once:
    """Applies each call once, by its id. A caller that goes away leaves its call, for the one that repeats it."""

    def __init__(self) -> None:
        self._calls: OrderedDict[str, tuple[float, asyncio.Task[None]]] = OrderedDict()

    async def apply(self, name: str | None, call: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Apply a call, or wait for the one of this id.

        Args:
            name: its id; None: it has none, so that it is applied whenever it comes.
            call: applies it.

        Raises:
            Exception: that of the call; one that has failed is applied again.
        """
        if name is None:
            await call()
            return
        self._forget_old()
        known = self._calls.get(name)
        if known is None or (known[1].done() and (known[1].cancelled() or known[1].exception() is not None)):
            known = (asyncio.get_running_loop().time(), asyncio.create_task(call(), name="rollbox bridge input"))
            self._calls[name] = known
        await asyncio.shield(known[1])

    async def aclose(self) -> None:
        """End the calls that are under way."""
        tasks = [task for _, task in self._calls.values()]
        self._calls.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _forget_old(self) -> None:
        limit = asyncio.get_running_loop().time() - _KEPT_S
        while self._calls:
            name, (began, task) = next(iter(self._calls.items()))
            if not task.done() or (began > limit and len(self._calls) < _MOST):
                return
            del self._calls[name]
