"""Work for a caller who may hang up while it waits."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from starlette.requests import Request

from controlplane.errors import Problem

T = TypeVar("T")


async def unless_gone(request: Request, work: Coroutine[Any, Any, T], give_up: Callable[[], Awaitable[None]]) -> T:
    """The result of ``work``; when the caller hangs up first (or this call is cancelled), ``give_up`` is run instead.

    The request's body must have been read before.
    """
    working = asyncio.ensure_future(work)
    hangup = asyncio.ensure_future(_hung_up(request))
    answered = False
    try:
        await asyncio.wait([working, hangup], return_when=asyncio.FIRST_COMPLETED)
        # Both: what is ready at once is ready for nobody. A failure has nothing to give up.
        answered = working.done() and (not hangup.done() or working.exception() is not None)
        if answered:
            return working.result()
        raise Problem("deleted", "the caller hung up before the sandbox was ready")
    finally:
        hangup.cancel()
        if not answered:
            working.cancel()
            await give_up()
        await asyncio.wait([working, hangup])


async def _hung_up(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
