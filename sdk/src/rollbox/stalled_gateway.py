"""Gives up an attempt of an exec whose gateway stands still: stopped, a process keeps its connections and is silent.

A command may run for hours, so silence alone says nothing. Another gateway is asked whether the command runs: if it
does not, its answer is on its way or will never come, or the request lies unread. Either way the same request may be
sent again, elsewhere: it joins the command or gets its result (`exec_id`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import TypeVar

from rollbox.errors import UpstreamTimeout

_T = TypeVar("_T")

# The silence before the first question; as long as attached connections wait for a ping.
_FIRST_S = 15.0
# The longest pause between two questions. Each is twice as long as the one before.
_LONGEST_S = 60.0
# An answer that is on its way has this long to come.
_ON_ITS_WAY_S = 3.0


class Attempts:
    """The attempts of one exec.

    Args:
        runs: asks another gateway whether the command runs; True also where nobody knows.
    """

    def __init__(self, runs: Callable[[], Awaitable[bool]]) -> None:
        self._runs = runs
        self._elsewhere = False

    async def answer(self, send: Callable[[bool], Awaitable[_T]]) -> _T:
        """Send one attempt and return its answer.

        Args:
            send: one attempt; its argument says whether at a connection of its own.

        Raises:
            UpstreamTimeout: the command does not run, and no answer came. The next attempt goes elsewhere.
        """
        # Once elsewhere, it is asked rarely: a gateway whose calls wait for admission is none that stands still.
        first_s = _LONGEST_S if self._elsewhere else _FIRST_S
        try:
            async with _Standstill(self._runs, first_s):
                return await send(self._elsewhere)
        except TimeoutError as error:
            self._elsewhere = True
            raise UpstreamTimeout("a gateway answered nothing, and the command does not run") from error


class _Standstill:
    """While its block runs: ends it with TimeoutError when the command does not run and no answer has come.

    Costs a timer of the event loop until the first question is due.

    Args:
        runs: asks whether the command runs; True also where nobody knows.
        first_s: seconds before the first question.
    """

    def __init__(self, runs: Callable[[], Awaitable[bool]], first_s: float) -> None:
        self._runs = runs
        self._first_s = first_s
        self._scope = asyncio.timeout(None)
        self._asking: asyncio.Task[None] | None = None

    async def __aenter__(self) -> None:
        await self._scope.__aenter__()
        self._timer = asyncio.get_running_loop().call_later(self._first_s, self._ask)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        if self._asking is not None:
            self._asking.cancel()
        await self._scope.__aexit__(kind, error, trace)

    def _ask(self) -> None:
        self._asking = asyncio.get_running_loop().create_task(self._until_it_does_not_run())

    async def _until_it_does_not_run(self) -> None:
        pause_s = self._first_s
        while await self._runs():
            pause_s = min(2 * pause_s, _LONGEST_S)
            await asyncio.sleep(pause_s)
        await asyncio.sleep(_ON_ITS_WAY_S)
        self._scope.reschedule(asyncio.get_running_loop().time())
