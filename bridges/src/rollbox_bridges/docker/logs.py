"""What a main process has written, and what it goes on to write."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from aiohttp import web

from rollbox import OutputStream, Process
from rollbox_bridges.docker import relays
from rollbox_bridges.docker.asking import Query
from rollbox_bridges.docker.container import KEPT_BYTES, Container
from rollbox_bridges.docker.frames import STDERR, STDOUT, content_type, frame, last_lines
from rollbox_bridges.docker.hijacking import Connection, hijacked
from rollbox_bridges.docker.words import Refusal, not_honoured

_LOGS = frozenset({"follow", "stdout", "stderr", "tail"})
_ATTACH = frozenset({"logs", "stream", "stdin", "stdout", "stderr"})


async def logs(request: web.BaseRequest, container: Container) -> web.StreamResponse:
    """Send what is kept of the output, the last 4 MiB of each stream, and with `follow` what comes."""
    query = Query(request, _LOGS)
    wanted = query.flag("stdout"), query.flag("stderr")
    if wanted == (False, False):
        raise Refusal(400, "Bad parameters: you must choose at least one stream")
    tail = _tail(query.text("tail", "all"))
    response = web.StreamResponse(headers={"Content-Type": content_type(tty=container.wish.tty)})
    # Clients ask for these, wait for the end, remove the container, and only then read what they have asked for: what
    # is kept of both streams is taken over by this answer, so that no removal waits for a client, and nothing is lost.
    async with container.reader():
        await response.prepare(request)
        if request.transport is not None:
            request.transport.set_write_buffer_limits(high=3 * KEPT_BYTES)
        if container.exec_id:
            await _sent(container, response.write, wanted, tail, follow=query.flag("follow"))
    await response.write_eof()
    return response


async def _sent(
    container: Container, write: relays.Send, wanted: tuple[bool, bool], tail: int | None, *, follow: bool
) -> None:
    tty = container.wish.tty
    process = await container.sandbox.processes.attach(container.exec_id)
    process.detach()
    async with process:
        there = await _there(container, process, wanted)
        for stream, data in there if tail is None else last_lines(there, tail):
            await write(data if tty else frame(stream, data))
        if follow:
            await relays.output(process, write, tty=tty, stdout=wanted[0], stderr=wanted[1])


async def attach(request: web.BaseRequest, container: Container) -> web.StreamResponse:
    """Have a client see the output of the main process and write its input, also of one that is not started yet."""
    query = Query(request, _ATTACH)
    if query.flag("logs") and not query.flag("stream"):
        raise not_honoured("logs=true without stream", "ask for /logs")
    async with container.reader():
        running = container.state == "running"
        at = await _written(container) if running and not query.flag("logs") else (0, 0)
        connection = await hijacked(request, content_type(tty=container.wish.tty))
        try:
            if query.flag("stream") and await container.runs():
                await _attached(query, container, connection, at)
        finally:
            await connection.finish()
    return connection.response


async def _attached(query: Query, container: Container, connection: Connection, at: tuple[int, int]) -> None:
    process = await container.sandbox.processes.attach(container.exec_id, stdout_offset=at[0], stderr_offset=at[1])
    process.detach()
    writer = container.main if query.flag("stdin") and container.wish.stdin and container.state == "running" else None
    async with process:
        with suppress(ConnectionError):
            await relays.both(
                process,
                writer,
                connection,
                tty=container.wish.tty,
                stdout=query.flag("stdout"),
                stderr=query.flag("stderr"),
                closes=container.wish.stdin_once,
            )


async def _written(container: Container) -> tuple[int, int]:
    """How much the main process has written to each stream."""
    for one in await container.sandbox.processes.list():
        if one.exec_id == container.exec_id:
            return one.stdout_bytes, one.stderr_bytes
    return 0, 0


async def _there(container: Container, process: Process, wanted: tuple[bool, bool]) -> list[tuple[int, bytes]]:
    """What was written until now of the wanted streams, in the order in which it comes."""
    totals = await _written(container)
    pieces: list[tuple[int, bytes]] = []

    async def read(stream: OutputStream, number: int, total: int, keep: bool) -> None:
        while stream.offset < total and (data := await stream.next_bytes()):
            if keep:
                pieces.append((number, data))

    async with asyncio.TaskGroup() as group:
        group.create_task(read(process.stdout, STDOUT, totals[0], wanted[0]))
        group.create_task(read(process.stderr, STDERR, totals[1], wanted[1]))
    return pieces


def _tail(text: str) -> int | None:
    """How many lines; None: all."""
    if text in {"", "all"} or text.startswith("-"):
        return None
    if not text.isascii() or not text.isdigit():
        raise Refusal(400, f"tail={text[:40]} is neither a number nor all")
    return int(text[:9])
