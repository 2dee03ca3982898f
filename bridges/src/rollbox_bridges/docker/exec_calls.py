"""Calls on commands in containers."""

from __future__ import annotations

from contextlib import suppress

from aiohttp import web

from rollbox_bridges.docker import described, relays
from rollbox_bridges.docker.asking import Query, json_body
from rollbox_bridges.docker.engine import Engine
from rollbox_bridges.docker.execs import Exec, NotStartedError
from rollbox_bridges.docker.frames import STDOUT, content_type, frame
from rollbox_bridges.docker.hijacking import hijacked
from rollbox_bridges.docker.running import detached, exec_of
from rollbox_bridges.docker.words import Refusal


async def create(request: web.BaseRequest, engine: Engine, name: str) -> web.StreamResponse:
    """Say what is to run."""
    Query(request, frozenset())
    made = engine.execs.create(engine.containers.get(name), exec_of(await json_body(request)))
    return web.json_response({"Id": made.id}, status=201)


async def start(request: web.BaseRequest, engine: Engine, exec_id: str) -> web.StreamResponse:
    """Run it; its output goes to its client, unless that is detached. A client that goes away leaves it running."""
    Query(request, frozenset())
    one = engine.execs.get(exec_id)
    alone, size = detached(await json_body(request), one.wish)
    try:
        await one.start(detached=alone, size=size)
    except NotStartedError as error:
        if alone:
            raise Refusal(400, str(error)) from error
        return await _told(request, one, str(error))
    if not alone:
        return await _streamed(request, one)
    await one.aclose()
    return web.Response()


async def inspect(request: web.BaseRequest, engine: Engine, exec_id: str) -> web.StreamResponse:
    """Tell whether it runs, and its exit code."""
    Query(request, frozenset())
    one = engine.execs.get(exec_id)
    await one.look()
    return web.json_response(described.execution(one))


async def resize(request: web.BaseRequest, engine: Engine, exec_id: str) -> web.StreamResponse:
    """Set the size of its terminal."""
    query = Query(request, frozenset({"h", "w"}))
    one = engine.execs.get(exec_id)
    if one.process is None or not one.wish.tty:
        raise Refusal(409, f"exec {exec_id} does not run on a terminal")
    await one.process.resize(query.whole("w", 80, least=1), query.whole("h", 24, least=1))
    return web.Response()


async def _streamed(request: web.BaseRequest, one: Exec) -> web.StreamResponse:
    assert one.process is not None  # noqa: S101 - it was started
    wish = one.wish
    try:
        connection = await hijacked(request, content_type(tty=wish.tty))
        try:
            with suppress(ConnectionError):
                await relays.both(
                    one.process,
                    one.process if wish.stdin else None,
                    connection,
                    tty=wish.tty,
                    stdout=wish.stdout,
                    stderr=wish.stderr,
                )
                # Its end is known before its client asks for it.
                await one.process.wait()
                await one.look()
        finally:
            await connection.finish()
    finally:
        await one.aclose()
    return connection.response


async def _told(request: web.BaseRequest, one: Exec, said: str) -> web.StreamResponse:
    """Tell why a command was not started, as Docker does: as its output."""
    connection = await hijacked(request, content_type(tty=one.wish.tty))
    data = f"{said}\r\n".encode()
    with suppress(ConnectionError):
        await connection.send(data if one.wish.tty else frame(STDOUT, data))
    await connection.finish()
    return connection.response
