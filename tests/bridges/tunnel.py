"""A proxy of HTTP's CONNECT that takes every connection to one address, whatever its name: a wildcard in a DNS."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

_MOST = 2**16


@asynccontextmanager
async def tunnel(host: str, port: int) -> AsyncIterator[str]:
    """A proxy to one address; gives the proxy's own."""
    running: set[asyncio.Task[None]] = set()

    async def taken(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        running.add(task)
        task.add_done_callback(running.discard)
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"CONNECT ")
            inner, outer = await asyncio.open_connection(host, port)
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
            await asyncio.gather(_copied(reader, outer), _copied(inner, writer))

    server = await asyncio.start_server(taken, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def _copied(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(_MOST):
            writer.write(data)
            await writer.drain()
    finally:
        writer.close()
