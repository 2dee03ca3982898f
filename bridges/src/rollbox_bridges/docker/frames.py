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
    for stream, data in reversed(pieces):
        lines = data.splitlines(keepends=True)
        # What begins a line of the piece after it counts with that.
        whole = len(lines) - (0 if at_end or not lines or lines[-1].endswith(b"\n") else 1)
        taken = lines[max(0, whole - left) :] if left > 0 or whole < len(lines) else []
        if left <= 0 and whole >= len(lines):
            break
        kept.append((stream, b"".join(taken)))
        left -= min(whole, left)
        at_end = False
    return kept[::-1]
