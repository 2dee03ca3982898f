"""One gRPC call over a connection of its own, in as little of HTTP/2 as carries it: a fifth of what a channel costs.

It knows a success when it sees one, and nothing else: headers are compressed, and are not read here but for the two
forms in which ``grpc-status: 0`` comes. Whatever is not that is asked again by the client that understands it all, so
only calls that are safe to repeat are made like this.
"""

import asyncio
from typing import Final

# Half of what a claim has for its bind: the other half is the full client's.
WITHIN_S: Final = 1.5
# One frame, within every window that a new connection has.
MOST_BYTES: Final = 16_000
MOST_ANSWER_BYTES: Final = 64 * 1024

_DATA, _HEADERS, _SETTINGS, _PING, _WINDOW = 0, 1, 4, 6, 8
_ACK = _END_STREAM = 0x1
_END_HEADERS: Final = 0x4
# A preface, and settings: nothing is to be pushed.
_HELLO: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\x06\x04\0\0\0\0\0" + b"\0\x02\0\0\0\0"
# In HPACK: names by their numbers in its table, values as they are. What begins with a colon has to come first.
_POST: Final = b"\x83\x86\x01\x07sidecar\x04"  # http, the authority; the path follows
_GRPC: Final = b"\x0f\x10\x10application/grpc\x00\x02te\x08trailers\x1f\x08"  # the authorization follows
# Name (as it is, or in Huffman's code) and value.
_NAMES: Final = (b"\x0bgrpc-status", b"\x88\x9a\xca\xc8\xb2\x12\x34\xda\x8f")
_STATUSES: Final = tuple(name + value for name in _NAMES for value in (b"\x010", b"\x81\x07"))


async def asked(address: str, path: str, token: str, message: bytes) -> bytes | None:
    """The answer's message; None: it was not a plain success, or cannot be had like this.

    Args:
        address: ``unix:PATH``, or host and port; others are not for this.
        path: of the call, with both slashes.
        token: what authorizes it.
        message: the request's; calls of more than ``MOST_BYTES`` are not for this.
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
    """A text in HPACK: its length in seven bits, or in seven and more, and itself."""
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
