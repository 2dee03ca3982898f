"""The sidecars' port where egress takes part: links of egress go to a played relay, all else to the gRPC server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

MARK = b"LEG "
TICKET_BYTES = 16
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_HEAD_BYTES = 9
_SETTINGS, _PING = 4, 6
_ACK = 1
_SOME_BYTES = 1 << 16

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def front(port: int) -> Talk:
    """What serves one connection to the sidecars' port; `port`: of the gRPC server behind it."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            begin = await reader.readexactly(len(MARK))
            if begin == MARK:
                await reader.readexactly(TICKET_BYTES)
                await _idle_link(reader, writer)
            else:
                await _forwarded(begin, reader, writer, port)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    return talk


async def _idle_link(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Be the relay of a sandbox whose programs reach nothing: HTTP/2 with no stream."""
    writer.write(_PREFACE + _frame(_SETTINGS, 0))
    while True:
        head = await reader.readexactly(_HEAD_BYTES)
        body = await reader.readexactly(int.from_bytes(head[:3]))
        if head[3] in (_SETTINGS, _PING) and not head[4] & _ACK:
            writer.write(_frame(head[3], _ACK, body if head[3] == _PING else b""))


def _frame(kind: int, flags: int, body: bytes = b"") -> bytes:
    return len(body).to_bytes(3) + bytes((kind, flags)) + bytes(4) + body


async def _forwarded(begin: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int) -> None:
    answers, requests = await asyncio.open_connection("127.0.0.1", port)
    requests.write(begin)
    async with asyncio.TaskGroup() as both:
        both.create_task(_copied(reader, requests))
        both.create_task(_copied(answers, writer))


async def _copied(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    try:
        while some := await source.read(_SOME_BYTES):
            sink.write(some)
            await sink.drain()
    except OSError:
        pass
    sink.close()
