"""What is written while a new connection is brought up to date: it follows, and overtakes nothing."""

from __future__ import annotations

import asyncio
import json
import struct
from typing import Any, cast

import aiohttp
import pytest

from rollbox.gateway import Gateway, SandboxAccess
from rollbox.process.connection import Connection
from rollbox.retry import RetryPolicy


class Socket:
    """A WebSocket whose sends wait where `gate` is closed."""

    def __init__(self) -> None:
        self.sent: list[str | int] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.coming: asyncio.Queue[aiohttp.WSMessage] = asyncio.Queue()
        self._response = None

    async def send_bytes(self, message: bytes) -> None:
        await self.gate.wait()
        self.sent.append(struct.unpack_from(">Q", message, 1)[0])

    async def send_str(self, message: str) -> None:
        await self.gate.wait()
        self.sent.append(json.loads(message)["type"])

    async def receive(self) -> aiohttp.WSMessage:
        return await self.coming.get()

    async def close(self) -> None:
        """Nothing is to be closed."""


class Attaches:
    """A gateway that hands these sockets out, one for each attach."""

    def __init__(self, *sockets: Socket) -> None:
        self._sockets = iter(sockets)
        self.retries = RetryPolicy()

    async def attach(self, *_: object) -> Socket:
        return next(self._sockets)


BROKEN = aiohttp.WSMessage(aiohttp.WSMsgType.ERROR, ConnectionResetError(), None)


@pytest.fixture
def sockets() -> tuple[Socket, Socket, Socket]:
    return Socket(), Socket(), Socket()


@pytest.fixture
def connection(sockets: tuple[Socket, ...], monkeypatch: pytest.MonkeyPatch) -> Connection:
    async def at_once(*_: Any) -> None:
        pass

    made = Connection(cast("Gateway", Attaches(*sockets)), cast("SandboxAccess", None), "e1", (0, 0))
    monkeypatch.setattr(made, "_retry_after", at_once)
    monkeypatch.setattr("rollbox.process.connection.abort", lambda _: None)
    return made


async def _turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def _break(socket: Socket) -> None:
    socket.exception = ConnectionResetError  # type: ignore[attr-defined]
    socket.coming.put_nowait(BROKEN)


async def test_what_is_written_meanwhile_overtakes_nothing(
    connection: Connection, sockets: tuple[Socket, Socket, Socket]
) -> None:
    first, second, _ = sockets
    await connection.open()
    await connection.write(b"aa")
    await connection.write(b"bb")
    reading = asyncio.ensure_future(connection.ended())
    second.gate.clear()
    _break(first)
    await _turns()
    writing = asyncio.ensure_future(connection.write(b"cc"))
    await _turns()
    assert second.sent == []
    second.gate.set()
    await writing
    await connection.write_eof()
    assert (first.sent, second.sent) == ([0, 2], [0, 2, 4, "stdin_eof"])
    reading.cancel()


async def test_where_the_one_that_sends_again_is_cancelled_the_next_connection_begins_again(
    connection: Connection, sockets: tuple[Socket, Socket, Socket]
) -> None:
    first, second, third = sockets
    await connection.open()
    await connection.write(b"aa")
    reading = asyncio.ensure_future(connection.ended())
    second.gate.clear()
    _break(first)
    await _turns()
    reading.cancel()
    await _turns()
    await connection.write(b"bb")
    assert (second.sent, third.sent) == ([], [0, 2])
