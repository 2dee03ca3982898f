"""Heads of tar archives of strangers, looked at before a parser reads what they say into memory."""

from __future__ import annotations

import os
import tarfile
from typing import IO, Final

# Of what says more of an entry than its head can: long names, times. A parser reads it whole into memory.
_MOST_SAID_BYTES: Final = 1 << 16
_SAYING: Final = frozenset({b"x", b"g", b"X", b"L", b"K"})
_SPARSE: Final = b"S"
_WITHOUT_CONTENT: Final = frozenset({b"1", b"2", b"3", b"4", b"5", b"6"})


class HeadsError(Exception):
    """An archive is not taken.

    Attributes:
        status: of HTTP.
        message: what follows the archive's name in a sentence.
    """

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


def check(archive: IO[bytes], most_files: int, most_bytes: int) -> None:
    """Check what a parser would read into memory, and that there is not too much; blocks.

    Args:
        archive: uncompressed, at its begin; one that can seek forward only is enough.
        most_files: entries that are taken.
        most_bytes: of the archive.

    Raises:
        HeadsError: it is no archive, or one that is not taken.
    """
    count = at = 0
    while any(head := archive.read(tarfile.BLOCKSIZE)):
        count += 1
        kind, size = head[156:157], _size(head, most_bytes)
        at += tarfile.BLOCKSIZE + -(-size // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE
        if count > 3 * most_files:
            raise HeadsError(f"has more than {most_files} files", 413)
        if kind in _SAYING and size > _MOST_SAID_BYTES:
            raise HeadsError(f"has a head of {size} bytes, over {_MOST_SAID_BYTES}")
        if kind == _SPARSE:
            raise HeadsError("has a sparse file")
        if at > most_bytes:
            raise HeadsError(f"has over {most_bytes} bytes", 413)
        archive.seek(at, os.SEEK_SET)


def _size(head: bytes, otherwise: int) -> int:
    if len(head) != tarfile.BLOCKSIZE:
        raise HeadsError("is no whole tar archive")
    text = head[124:136]
    if head[156:157] in _WITHOUT_CONTENT:
        return 0
    try:
        # What octal digits cannot say is over every limit.
        return int(text.strip(b" \0") or b"0", 8) if text[0] < 0x80 else otherwise
    except ValueError as error:
        raise HeadsError("is no tar archive") from error
