"""Frames on the program's own descriptors (a kind, a length, fields that each have a length), and their record."""

from __future__ import annotations

import fcntl
import os

# Above the descriptors that programs close by the hundred.
_OWN_FD = 200
_READ_BYTES = 2**16
# Answers that are kept, all of them together, and one: of a longer one only the end is.
_RECORDS, _RECORDS_BYTES, _RECORD_BYTES = 1024, 2**22, 2**20

# What the client asks for.
CELL, VARIABLES = b"C", b"V"
# What it is told.
HELLO, STDOUT, STDERR, RESULT, BACKGROUND, END = b"H", b"O", b"E", b"R", b"B", b"F"


def encoded(kind: bytes, *fields: bytes) -> bytes:
    """A frame."""
    body = b"".join([len(field).to_bytes(4, "big") + field for field in fields])
    return kind + len(body).to_bytes(4, "big") + body


def kept_apart(fd: int) -> int:
    """A descriptor for the same file that no sub-process inherits."""
    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _OWN_FD)


class Wire:
    """The two private descriptors: requests come on one, frames go to the other; an answer is given once."""

    def __init__(self) -> None:
        self._requests = kept_apart(0)
        self._frames = kept_apart(1)
        self._received = bytearray()
        self._record = bytearray()
        self._whole = True
        self._records: dict[bytes, bytes] = {}
        self._records_bytes = 0

    def receive(self) -> tuple[bytes, list[bytes]] | None:
        """Wait for a request: its kind and fields; None at the end."""
        received, size = self._received, 5
        while True:
            if len(received) >= 5:
                size = 5 + int.from_bytes(received[1:5], "big")
            if len(received) >= size:
                break
            data = os.read(self._requests, _READ_BYTES)
            if not data:
                return None
            received += data
        request = bytes(received[:size])
        del received[:size]
        fields, at = [], 5
        while at < size:
            start = at + 4
            at = start + int.from_bytes(request[at:start], "big")
            fields.append(request[start:at])
        return request[:1], fields

    def send(self, data: bytes) -> None:
        """Write all of it."""
        at = os.write(self._frames, data)
        while at < len(data):
            at += os.write(self._frames, data[at : at + 2**20])
        # What the client waits for has gone first.
        self._whole = self._whole and len(self._record) + len(data) <= _RECORD_BYTES
        if self._whole:
            self._record += data

    def repeated(self, key: bytes) -> bool:
        """Send the recorded answer to a request; False: there is none, and what is sent from now on is recorded."""
        if key in self._records:
            self.send(self._records[key])
            return True
        self._record, self._whole = bytearray(), True
        return False

    def keep(self, key: bytes, final: bytes) -> None:
        """Keep what was sent since `repeated`: all of it, or its end."""
        self._records[key] = bytes(self._record) if self._whole else final
        self._records_bytes += len(self._records[key])
        while self._records_bytes > _RECORDS_BYTES or len(self._records) > _RECORDS:
            self._records_bytes -= len(self._records.pop(next(iter(self._records))))

    def close(self) -> None:
        """Close both, in a child that is none of the client's business."""
        os.close(self._requests)
        os.close(self._frames)
