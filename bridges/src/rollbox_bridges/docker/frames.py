"""Streams of output as Docker multiplexes them: eight bytes of head, then data. Pure."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

STDOUT: Final = 1
STDERR: Final = 2
RAW: Final = "application/vnd.docker.raw-stream"
MULTIPLEXED: Final = "application/vnd.docker.multiplexed-stream"
_HEAD: Final = struct.Struct(">BxxxI")


def frame(stream: int, data: bytes) -> bytes:
    """One piece of a stream."""
    return _HEAD.pack(stream, len(data)) + data


def content_type(*, tty: bool) -> str:
    """The type of a stream: of a terminal its bytes alone, else with heads."""
    return RAW if tty else MULTIPLEXED


def last_lines(pieces: Sequence[tuple[int, bytes]], most: int) -> list[tuple[int, bytes]]:
    """The last lines of pieces of two streams, in the order in which they came.

    Args:
        pieces: stream and data of each.
        most: how many lines.
    """
    kept: list[tuple[int, bytes]] = []
    left, at_end = most, True
    for stream, data in reversed(pieces if most else ()):
        # The newline at the very end begins no line.
        end = len(data) - (at_end and data.endswith(b"\n"))
        at_end = at_end and not data
        cut = end
        while left and (cut := data.rfind(b"\n", 0, end)) >= 0:
            left, end = left - 1, cut
        if not left:
            return [(stream, data[cut + 1 :]), *kept[::-1]]
        kept.append((stream, data))
    return kept[::-1]
