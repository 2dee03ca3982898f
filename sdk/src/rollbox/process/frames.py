"""Messages of an attached WebSocket: one byte of kind, a 64-bit offset, data. Pure."""

from __future__ import annotations

import struct

from rollbox.errors import Internal

STDIN, STDOUT, STDERR = 0, 1, 2
_HEAD = struct.Struct(">BQ")


def written(offset: int, data: bytes) -> bytes:
    """Encode a message with stdin from this offset on."""
    return _HEAD.pack(STDIN, offset) + data


def read(message: bytes) -> tuple[int, int, bytes]:
    """Decode an output message. Cost: one copy.

    Returns:
        kind (STDOUT or STDERR), offset of the first byte, and the data.

    Raises:
        Internal: it is anything else.
    """
    if len(message) < _HEAD.size or message[0] not in (STDOUT, STDERR):
        raise Internal(f"the gateway sent a malformed output message: {message[:16]!r}")
    kind, offset = _HEAD.unpack_from(message)
    return kind, offset, message[_HEAD.size :]
