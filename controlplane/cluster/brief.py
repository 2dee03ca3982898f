"""A minimal gRPC client: one unary call on a new connection, at a fifth of the cost of a gRPC channel.

It implements only as much of HTTP/2 as one call needs, and recognizes only success: response headers are compressed
(HPACK) and are not decoded, only searched for the encodings of ``grpc-status: 0``. After any other answer the caller
repeats the call with the full gRPC client, so only idempotent calls may be made this way.
"""

import asyncio
from typing import Final

# Timeout. It is half of the time that a claim has to configure its sandbox; the other half is left for the full client.
WITHIN_S: Final = 1.5
# Largest request: fits into one frame and into the initial flow-control window.
MOST_BYTES: Final = 16_000
MOST_ANSWER_BYTES: Final = 64 * 1024

_DATA, _HEADERS, _SETTINGS, _PING, _WINDOW = 0, 1, 4, 6, 8
_ACK = _END_STREAM = 0x1
_END_HEADERS: Final = 0x4
# The connection preface and a SETTINGS frame with ENABLE_PUSH = 0.
_HELLO: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\x06\x04\0\0\0\0\0" + b"\0\x02\0\0\0\0"
# HPACK: names as indexes of its static table where they have one, values as literals. Pseudo-headers have to be first.
_POST: Final = b"\x83\x86\x01\x07sidecar\x04"  # :method POST, :scheme http, :authority; the value of :path follows
_GRPC: Final = b"\x0f\x10\x10application/grpc\x00\x02te\x08trailers\x1f\x08"  # the value of authorization follows
# The encodings of `grpc-status: 0`: name and value, each as a literal or Huffman-coded.
_NAMES: Final = (b"\x0bgrpc-status", b"\x88\x9a\xca\xc8\xb2\x12\x34\xda\x8f")
_STATUSES: Final = tuple(name + value for name in _NAMES for value in (b"\x010", b"\x81\x07"))


async def asked(address: str, path: str, token: str, message: bytes) -> bytes | None:
    """Makes a call and returns the answer's message; None: no success, or not possible with this client.

    Args:
        address: ``unix:PATH`` or ``HOST:PORT``; returns None for any other form.
        path: the gRPC method, as ``/SERVICE/METHOD``.
        token: the bearer token.
        message: the request message; returns None if it is longer than ``MOST_BYTES``.
    """
    host, _, port = address.rpartition(":")
    if not (host == "unix" or port.isdecimal()) or not host or len(message) > MOST_BYTES:
        return None
    try:
        async with asyncio.timeout(WITHIN_S):
            if host == "unix":
                reader, writer = await asyncio.open_unix_connection(port)
            else:
                reader, writer = await asyncio.open_connection(host.strip("[]"), int(port))
            try:
                writer.write(_HELLO + _call(path, token, message))
                return await _answer(reader, writer)
            finally:
                writer.close()
    except (OSError, EOFError, TimeoutError):
        return None


def _call(path: str, token: str, message: bytes) -> bytes:
    head = _POST + _text(path) + _GRPC + _text(f"Bearer {token}")
    body = b"\0" + len(message).to_bytes(4, "big") + message
    return _frame(_HEADERS, _END_HEADERS, head) + _frame(_DATA, _END_STREAM, body)


def _frame(kind: int, flags: int, content: bytes, stream: int = 1) -> bytes:
    return len(content).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + content


def _text(text: str) -> bytes:
    """An HPACK string literal: its length as an integer with a 7-bit prefix (RFC 7541, 5.1), then the text."""
    data, most = text.encode(), 0x7F
    if len(data) < most:
        return bytes((len(data),)) + data
    size, left = bytearray((most,)), len(data) - most
    while left > most:
        size.append(left & most | most + 1)
        left >>= 7
    return bytes((*size, left)) + data


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes | None:
    body, read_bytes = b"", 0
    while True:
        head = await reader.readexactly(9)
        size, kind, flags = int.from_bytes(head[:3], "big"), head[3], head[4]
        read_bytes += size
        if read_bytes > MOST_ANSWER_BYTES:
            return None
        content = await reader.readexactly(size)
        if kind == _DATA and not flags:
            body += content
        elif kind == _HEADERS and flags == _END_HEADERS | _END_STREAM:
            sound = any(status in content for status in _STATUSES)
            whole = len(body) >= 5 and not body[0] and len(body) - 5 == int.from_bytes(body[1:5], "big")
            return body[5:] if sound and whole else None
        elif kind in (_SETTINGS, _PING):
            if not flags & _ACK:
                writer.write(_frame(kind, _ACK, content if kind == _PING else b"", 0))
        elif kind != _WINDOW and not (kind == _HEADERS and flags == _END_HEADERS):
            return None
