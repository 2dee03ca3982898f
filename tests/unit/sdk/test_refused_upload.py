"""A refusal that comes in the middle of an upload is read, whatever else the connection would still take."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, suppress

import pytest
from yarl import URL

from rollbox.errors import NoSpace
from rollbox.transport import Transport

MIB = 2**20
# A gateway reads on for a while, then closes what a client did not stop sending into: the reset takes the answer along.
TAKEN_BYTES = 256 * MIB
RESET = struct.pack("ii", 1, 0)


def _refuses(listener: socket.socket, accepted: list[socket.socket]) -> None:
    connection, _ = listener.accept()
    accepted.append(connection)
    # A client that has its answer may close over what it was about to send.
    with closing(connection), suppress(ConnectionError):
        connection.recv(MIB)
        body = json.dumps({"code": "no_space", "detail": "full"}).encode()
        head = f"HTTP/1.1 507 X\r\nContent-Type: application/problem+json\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode() + body)
        left = TAKEN_BYTES
        while left > 0 and (taken := len(connection.recv(MIB))):
            left -= taken
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)


@pytest.fixture
def refusing() -> Iterator[str]:
    """The address of a server that refuses one upload; in a thread, since it reads while the client is not done."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        listener.settimeout(30)
        accepted: list[socket.socket] = []
        serving = threading.Thread(target=_refuses, args=(listener, accepted))
        serving.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        # The client's loop may have ended before it had closed its end.
        for connection in accepted:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        serving.join()


async def test_a_refusal_is_read_while_pieces_are_there_at_once(refusing: str) -> None:
    async def endless() -> AsyncIterator[bytes]:
        for _ in range(4096):
            yield bytes(MIB)

    transport = Transport(refusing)
    try:
        with pytest.raises(NoSpace):
            async with transport.exchange("PUT", URL(refusing) / "f", "key", source=endless):
                raise AssertionError("it was accepted")
    finally:
        await transport.aclose()
