"""Reads one output stream of a shell, and separates a command's output from the marks in it."""

from __future__ import annotations

import asyncio
import re

from rollbox.process import OutputStream


class Reader:
    """Reads up to marks; keeps the last `max_bytes` of a command's output."""

    def __init__(self, stream: OutputStream, max_bytes: int) -> None:
        self._stream = stream
        self._max_bytes = max_bytes
        self._held = bytearray()
        self._said = bytearray()
        self._total = 0

    async def until(self, mark: bytes) -> bool:
        """Read up to a mark, which is dropped; False when the stream ended first. Cancel safety: nothing is lost."""
        while (place := self._held.find(mark)) < 0:
            # The last bytes may be the beginning of the mark.
            self._keep(max(0, len(self._held) - len(mark) + 1))
            data = await self._stream.next_bytes()
            if not data:
                self._keep(len(self._held))
                return False
            self._held += data
        self._keep(place)
        del self._held[: len(mark)]
        return True

    async def between(self, mark: bytes) -> bytes:
        """Read up to the second of two marks, once `until` found the first; empty when the stream ended.

        Cancel safety: `take` then finds both marks and what is between them.
        """
        while (place := self._held.find(mark)) < 0:
            try:
                data = await self._stream.next_bytes()
            except asyncio.CancelledError:
                self._held[:0] = mark
                raise
            if not data:
                return b""
            self._held += data
        found = bytes(self._held[:place])
        del self._held[: place + len(mark)]
        return found

    def take(self, *marks: bytes) -> tuple[bytes, int]:
        """Return the kept output and its full size, without these marks and the text between two of them."""
        said, total = bytes(self._said), self._total
        for mark in marks:
            clean = re.sub(re.escape(mark) + rb"(?:\d+\n[\d\n]*" + re.escape(mark) + rb")?", b"", said)
            total -= len(said) - len(clean)
            said = clean
        self._said.clear()
        self._total = 0
        return said, total

    def _keep(self, count: int) -> None:
        self._said += self._held[:count]
        del self._held[:count]
        self._total += count
        if len(self._said) > self._max_bytes:
            del self._said[: len(self._said) - self._max_bytes]
