"""What stands before a control plane of a test: its API over real sockets, in virtual time, for the real SDK.

No server of its own loop and no gateway: a call is handed to the app, and its caller's hang-up too.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus

from aiohttp import web

from rollbox import Client, RetryPolicy
from tests.support.asgi import Answer
from tests.support.world import KEY, World

# What the app is told by the server itself.
_OWN = frozenset({"host", "content-length", "transfer-encoding"})


@asynccontextmanager
async def front(plane: World) -> AsyncIterator[str]:
    """The address of a control plane's API while the block runs."""
    calls: set[asyncio.Task[Answer]] = set()

    async def handed_on(request: web.Request) -> web.Response:
        gone, body = asyncio.Event(), await request.read()
        headers = {name.lower(): value for name, value in request.headers.items() if name.lower() not in _OWN}
        query = [(name, value) for name, value in request.query.items()]
        call = asyncio.create_task(
            plane.api(request.method, request.path, raw=body, query=query, headers=headers, hang_up=gone)
        )
        calls.add(call)
        call.add_done_callback(calls.discard)
        try:
            answer = await asyncio.shield(call)
        finally:
            gone.set()
        kept = {name: value for name, value in answer.headers.items() if name not in _OWN}
        return web.Response(status=HTTPStatus(answer.status), headers=kept, body=answer.body)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handed_on)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0, handler_cancellation=True)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield "http://{}:{}".format(*runner.addresses[0][:2])
    finally:
        if calls:
            await asyncio.wait(calls)
        await runner.cleanup()


@asynccontextmanager
async def user(url: str, key: str = KEY) -> AsyncIterator[Client]:
    """A client that repeats nothing."""
    async with Client(url, key, retries=RetryPolicy(tries=1)) as client:
        yield client
