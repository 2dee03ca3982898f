"""Signs of life in a stream, as often as its client asks for them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final

from aiohttp import web

from rollbox_bridges import tasks
from rollbox_bridges.connect.codes import ConnectError

_HEADER: Final = "Keepalive-Ping-Interval"
_LEAST_S: Final = 1
_MOST_DIGITS: Final = 6


@asynccontextmanager
async def keeping_alive(request: web.Request, tell: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    """Have a sign of life sent meanwhile.

    Args:
        request: whose header says how often; without it none is sent.
        tell: sends one.

    Raises:
        ConnectError: the header is malformed.
    """
    text = request.headers.get(_HEADER, "")
    if not text:
        yield
        return
    if not text.isascii() or not text.isdigit() or len(text) > _MOST_DIGITS:
        raise ConnectError("invalid_argument", f"{_HEADER} {text[:30]!r} is not a number of seconds")
    every_s = max(_LEAST_S, int(text))
    keeping: list[asyncio.Task[None]] = []

    def begin() -> None:
        keeping.append(asyncio.create_task(_keep(every_s, tell), name="rollbox bridge keep-alive"))

    # Most commands end before: they need no task.
    first = asyncio.get_running_loop().call_later(every_s, begin)
    try:
        yield
    finally:
        first.cancel()
        await tasks.over(keeping)


async def _keep(every_s: int, tell: Callable[[], Awaitable[None]]) -> None:
    # Of a caller that has gone the stream itself is told.
    with suppress(ConnectionResetError):
        while True:
            await tell()
            await asyncio.sleep(every_s)
