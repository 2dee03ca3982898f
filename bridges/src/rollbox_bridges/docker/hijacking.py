"""Connections that a request takes over: from its answer on they are bytes in both directions, each with an end.

An HTTP server closes a connection whose client has sent its last byte. Here that is the end of a command's input, and
output follows: so the connection gets another protocol, asyncio's own for streams.
"""

from __future__ import annotations

import asyncio
import fcntl
import struct
import termios
from contextlib import suppress
from typing import Any, Final

from aiohttp import web

from rollbox_bridges.docker.words import Refusal

_LIMIT_BYTES: Final = 2**17
_INT: Final = struct.Struct("i")
# Between looks whether the head was read, which no event tells; one that reads nothing is not waited for.
_LEAST_WAIT_S: Final = 0.0002
_LONGEST_WAIT_S: Final = 0.005
_MOST_WAIT_S: Final = 5.0


class Taken(asyncio.StreamReaderProtocol):
    """The protocol of a connection that was taken over; tells the HTTP server of its end."""

    def __init__(self, reader: asyncio.StreamReader, server: asyncio.Protocol) -> None:
        super().__init__(reader)
        self._server = server

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell both."""
        super().connection_lost(exc)
        self._server.connection_lost(exc)


class _Early:
    """Keeps what a client has sent before its connection was taken over."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        self._reader.feed_data(data)
        return False, b""

    def feed_eof(self) -> None:
        self._reader.feed_eof()


class Connection:
    """A connection that was taken over.

    Attributes:
        reader, writer: of it.
        response: what the handler of the request returns at the end.
    """

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, response: web.StreamResponse
    ) -> None:
        self.reader = reader
        self.writer = writer
        self.response = response
        self._heard = False
        self._hearing = asyncio.Lock()

    async def send(self, data: bytes) -> None:
        """Send; waits while the client does not read.

        Raises:
            ConnectionError: it is gone.
        """
        if not self._heard:
            # Two streams may have their first data at a time: neither goes before the head was read.
            async with self._hearing:
                await self._head_read()
        self.writer.write(data)
        await self.writer.drain()

    async def _head_read(self) -> None:
        """Wait until the client has read the head of the answer.

        The Docker SDK for Python loses what it reads together with the head: it goes on at the socket, below the buffer
        that its HTTP library has filled.
        """
        if self._heard:
            return
        opened = self.writer.get_extra_info("socket")
        wait_s, limit_s = _LEAST_WAIT_S, asyncio.get_running_loop().time() + _MOST_WAIT_S
        while _unread(opened.fileno()) and asyncio.get_running_loop().time() < limit_s:
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, _LONGEST_WAIT_S)
        self._heard = True

    async def finish(self) -> None:
        """Send what is left, and close."""
        with suppress(ConnectionError):
            await self.writer.drain()
        self.writer.close()


def _unread(descriptor: int) -> int:
    """How many sent bytes the other end of a Unix socket has not read; 0 where that cannot be told."""
    told = bytearray(_INT.size)
    try:
        fcntl.ioctl(descriptor, termios.TIOCOUTQ, told)
    except OSError:
        return 0
    return int(_INT.unpack(told)[0])


async def hijacked(request: web.BaseRequest, content_type: str) -> Connection:
    """Take the connection of a request over.

    Raises:
        Refusal: the client has not asked for that.
    """
    if request.headers.get("Upgrade", "").lower() != "tcp":
        raise Refusal(400, "the headers Connection: Upgrade and Upgrade: tcp are missing")
    headers = {"Content-Type": content_type, "Connection": "Upgrade", "Upgrade": "tcp"}
    response = web.StreamResponse(status=101, reason="UPGRADED", headers=headers)
    transport, server = request.transport, request.protocol
    if transport is None:
        raise ConnectionResetError("the client is gone")
    await response.prepare(request)
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=_LIMIT_BYTES, loop=loop)
    early: Any = _Early(reader)
    server.set_parser(early)
    server.keep_alive(False)
    protocol = Taken(reader, server)
    transport.set_protocol(protocol)
    protocol.connection_made(transport)
    return Connection(reader, asyncio.StreamWriter(transport, protocol, reader, loop), response)
