"""Envelopes of Connect's streams: a byte of flags, the length, the content. Pure; bounded, since it reads anything."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Final, NamedTuple

from rollbox_bridges.connect.codes import ConnectError

COMPRESSED: Final = 0x01
END_OF_STREAM: Final = 0x02
_HEAD: Final = struct.Struct(">BI")
_GZIP: Final = 31


class Envelope(NamedTuple):
    """One envelope."""

    flags: int
    content: bytes


def enveloped(content: bytes, flags: int = 0) -> bytes:
    """Write one envelope."""
    return _HEAD.pack(flags, len(content)) + content


class Envelopes:
    """Reads envelopes from bytes that come in any pieces.

    Args:
        most_bytes: of one envelope's content, after it was decompressed too.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._held = bytearray()

    def feed(self, data: bytes) -> Iterator[Envelope]:
        """Take bytes, and give the envelopes that are whole now.

        Raises:
            ConnectError: an envelope is too large, has unknown flags, or cannot be decompressed.
        """
        self._held += data
        while len(self._held) >= _HEAD.size:
            flags, size = _HEAD.unpack_from(self._held)
            if flags & ~(COMPRESSED | END_OF_STREAM):
                raise ConnectError("invalid_argument", f"an envelope has the unknown flags {flags:#04x}")
            if size > self._most:
                raise ConnectError("out_of_range", f"a message of {size} bytes is over the {self._most} taken")
            if len(self._held) < _HEAD.size + size:
                return
            content = bytes(self._held[_HEAD.size : _HEAD.size + size])
            del self._held[: _HEAD.size + size]
            if flags & COMPRESSED:
                content = decompressed(content, self._most)
            yield Envelope(flags & ~COMPRESSED, content)

    def finish(self) -> None:
        """Say that no more comes.

        Raises:
            ConnectError: the last envelope is not whole.
        """
        if self._held:
            raise ConnectError("invalid_argument", f"the body ends within an envelope, after {len(self._held)} bytes")


def decompressed(content: bytes, most_bytes: int) -> bytes:
    """Undo gzip.

    Raises:
        ConnectError: it is no gzip, is not whole, or would be more than `most_bytes`.
    """
    reader = zlib.decompressobj(_GZIP)
    try:
        plain = reader.decompress(content, most_bytes + 1)
    except zlib.error as error:
        raise ConnectError("invalid_argument", f"a compressed message is no gzip: {error}") from error
    if len(plain) > most_bytes:
        raise ConnectError("out_of_range", f"a compressed message has more than the {most_bytes} bytes taken")
    if not reader.eof or reader.unused_data:
        raise ConnectError("invalid_argument", "a compressed message is not one whole gzip stream")
    return plain
