"""Frames of the resident program: a byte of kind, a length, fields that each have a length. Pure.

Code in a cell can write to the descriptors of its own interpreter, so what comes is not trusted: it is bounded, and
what is no frame is an error.
"""

from __future__ import annotations

from typing import NamedTuple

from rollbox._problem import SandboxError
from rollbox.errors import Conflict

MOST_FRAME_BYTES = 2**25 + 2**16
"""No frame of the program is longer: a result whose forms take all that a cell may show."""
MOST_FIELDS = 30_001
"""No frame has more: that of 10,000 variables."""
_HEAD = 5
_KINDS = b"HOERBF"


class Frame(NamedTuple):
    """One frame."""

    kind: bytes
    fields: tuple[bytes, ...]


def encoded(kind: bytes, *fields: bytes) -> bytes:
    """A frame as it is sent."""
    body = b"".join(len(field).to_bytes(4, "big") + field for field in fields)
    return kind + len(body).to_bytes(4, "big") + body


class Decoder:
    """Cuts what comes into frames."""

    def __init__(self) -> None:
        self._unread = bytearray()

    def add(self, data: bytes) -> None:
        """Take what has come."""
        self._unread += data

    def frames(self) -> list[Frame]:
        """The frames that are whole, each once.

        Raises:
            Conflict: it is none.
        """
        unread, at, found = self._unread, 0, []
        while len(unread) - at >= _HEAD:
            start = at + _HEAD
            end = start + int.from_bytes(unread[at + 1 : start], "big")
            if unread[at] not in _KINDS or end - start > MOST_FRAME_BYTES:
                raise garbled(f"it sent {bytes(unread[at:start])!r}")
            if len(unread) < end:
                break
            found.append(Frame(bytes(unread[at : at + 1]), _fields(bytes(unread[start:end]))))
            at = end
        del unread[:at]
        return found


def garbled(what: str) -> SandboxError:
    """What to raise for something that the program never sends."""
    hint = "Code in a cell has written to its interpreter's own descriptors, or closed them: restart it."
    return Conflict(f"the interpreter says what it cannot mean: {what}", hint=hint)


def _fields(body: bytes) -> tuple[bytes, ...]:
    found: list[bytes] = []
    at, size = 0, len(body)
    while at < size:
        start = at + 4
        at = start + int.from_bytes(body[at:start], "big")
        if start > size or at > size or len(found) == MOST_FIELDS:
            raise garbled("a frame whose fields do not fit it")
        found.append(body[start:at])
    return tuple(found)
