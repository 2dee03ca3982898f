"""How a bridge's HTTP server is made, and what becomes of a request that fails."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import web

SHUTDOWN_S: Final = 1.0
"""How long requests that run have to end when the server stops, in seconds."""
_log = logging.getLogger("rollbox_bridges")


def runner_of(
    handle: Callable[[web.Request], Awaitable[web.StreamResponse]],
    cleanup: Callable[[web.Application], Awaitable[None]],
) -> web.AppRunner:
    """Make a server that has every request served by one function; it listens once it is set up.

    A caller that goes away ends its call. A compressed body is given as it came, since it would have no bound.

    Args:
        handle: serves a request.
        cleanup: is called when the server has stopped.
    """
    made = web.Application()
    made.router.add_route("*", "/{path:.*}", handle)
    made.on_cleanup.append(cleanup)
    return web.AppRunner(
        made, access_log=None, handler_cancellation=True, auto_decompress=False, shutdown_timeout=SHUTDOWN_S
    )


async def answered(
    request: web.Request, answer: Awaitable[web.StreamResponse], told: Callable[[Exception], web.Response]
) -> web.StreamResponse:
    """Await the answer to a request. An error is told; half an answer is cut, so that nobody takes it for a whole one.

    Args:
        request: that is served.
        answer: serves it.
        told: makes an answer of an error.
    """
    try:
        return await answer
    except Exception as error:
        if request.writer.output_size == 0:
            return told(error)
        _log.info("the answer to %s %s was cut: %r", request.method, request.path[:200], error)
        if request.transport is not None:
            request.transport.abort()
        return web.Response(status=500)
