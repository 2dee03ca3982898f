"""Reads one output stream of a shell, and separates a command's output from the marks in it."""

from __future__ import annotations

import asyncio
import re

from rollbox.process import OutputStream


class MarkedReader:
    """Reads up to marks; keeps the last `max_bytes` of a command's output."""

    def __init__(self, stream: OutputStream, max_bytes: int) -> None:
        self._stream = stream
        self.max_bytes = max_bytes
        self._unread = bytearray()
        self._output = bytearray()
        self._total = 0

    async def until(self, mark: bytes) -> bool:
        """Read up to a mark, which is dropped; False when the stream ended first. Cancel safety: nothing is lost."""
        while (place := self._unread.find(mark)) < 0:
            # The last bytes may be the beginning of the mark.
            self._add_output(max(0, len(self._unread) - len(mark) + 1))
            data = await self._stream.next_bytes()
            if not data:
                self._add_output(len(self._unread))
                return False
            self._unread += data
        self._add_output(place)
        del self._unread[: len(mark)]
        return True

    async def between(self, mark: bytes) -> bytes:
        """Read up to the second of two marks, once `until` found the first; empty when the stream ended.

        Cancel safety: `take` then finds both marks and what is between them.
        """
        while (place := self._unread.find(mark)) < 0:
            try:
                data = await self._stream.next_bytes()
            except asyncio.CancelledError:
                self._unread[:0] = mark
                raise
            if not data:
                return b""
            self._unread += data
        found = bytes(self._unread[:place])
        del self._unread[: place + len(mark)]
        return found

    def take(self, *marks: bytes) -> tuple[bytes, int]:
        """Return the kept output and its full size, without these marks and the text between two of them."""
        output, total = bytes(self._output), self._total
        for mark in marks:
            # Rarely: an expression of its own for each mark costs more than the command.
            if mark in output:
                clean = re.sub(re.escape(mark) + rb"(?:\d+\s[\d\s]*" + re.escape(mark) + rb")?", b"", output)
                total -= len(output) - len(clean)
                output = clean
        self._output.clear()
        self._total = 0
        return output, total

    def _add_output(self, count: int) -> None:
        self._output += self._unread[:count]
        del self._unread[:count]
        self._total += count
        if len(self._output) > self.max_bytes:
            del self._output[: len(self._output) - self.max_bytes]
