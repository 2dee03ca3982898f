"""The output streams of a process, as a program uses them."""

from __future__ import annotations

import asyncio
import codecs
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import NamedTuple, Protocol

UNREAD_BYTES = 2**18
"""How much unread output of a stream is buffered here; one message of the gateway may exceed it."""
# A longer line is returned in pieces: the command is not trusted to end it.
_LINE_CHARS = 2**20


class Gap(NamedTuple):
    """Lost bytes of a stream: the sandbox had dropped them before they were read."""

    offset: int
    lost_bytes: int


class Receiver(Protocol):
    """What brings the output of a stream: the connection of the process (`Connection`)."""

    async def until(self, done: Callable[[], bool]) -> None:
        """Receive until `done()`."""

    def announce(self) -> None:
        """Wake all callers that wait in `until`."""


class OutputStream:
    """stdout or stderr of a process: an asynchronous iterator of bytes that ends with the command.

    For one reader. Unread output waits in the sandbox, and blocks the command as a full pipe does (backpressure). A
    reader that takes nothing for 10 s while the program waits for something else of the same process (or less than
    26 KiB/s all the time) counts as gone, and so does that of a stream that was never read. Output that the sandbox
    drops meanwhile is recorded in `gaps`.

    Attributes:
        gaps: what was lost so far.
        offset: of the next byte that will be read; `processes.attach` continues there.
    """

    def __init__(self, receiver: Receiver, offset: int) -> None:
        """Use `Process.stdout` or `Process.stderr` instead."""
        self.gaps: list[Gap] = []
        self.offset = offset
        self.received = offset
        self.ended = False
        self.was_read = False
        # Set when output was dropped here for lack of a reader; it is fetched again when the stream is read.
        self.dropped_unread = False
        self.waiting_readers = 0
        self.taken_at = 0.0
        self.unread_bytes = 0
        self._unread: deque[tuple[int, bytes]] = deque()
        self._receiver = receiver

    def __aiter__(self) -> OutputStream:
        return self

    async def __anext__(self) -> bytes:
        data = await self.next_bytes()
        if not data:
            raise StopAsyncIteration
        return data

    async def next_bytes(self) -> bytes:
        """Wait for bytes and return them; empty at the end. Cancel safety: nothing is lost."""
        self.was_read = True
        self.waiting_readers += 1
        try:
            await self._receiver.until(lambda: bool(self._unread) or self.ended)
        finally:
            self.waiting_readers -= 1
        if self._unread:
            return self._take()
        self.offset = self.received
        return b""

    async def read(self) -> bytes:
        """Return all output up to the end, in memory."""
        return b"".join([part async for part in self])

    async def text(self) -> AsyncIterator[str]:
        """Iterate over text: UTF-8, invalid bytes replaced, characters split between messages joined."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        async for part in self:
            if said := decoder.decode(part):
                yield said
        if said := decoder.decode(b"", final=True):
            yield said

    async def lines(self) -> AsyncIterator[str]:
        r"""Iterate over lines, without their \n; a line over a million characters comes in pieces."""
        rest = ""
        async for said in self.text():
            *lines, rest = (rest + said).split("\n")
            for line in lines:
                yield line
            if len(rest) > _LINE_CHARS:
                yield rest
                rest = ""
        if rest:
            yield rest

    def arrived(self, offset: int, data: bytes) -> None:
        """Buffer received data; bytes that were received before are cut off, skipped ones become a gap."""
        if self.dropped_unread:
            return
        data = data[max(0, self.received - offset) :]
        if not data:
            return
        self._skip_to(offset)
        self._unread.append((self.received, data))
        self.received += len(data)
        self.unread_bytes += len(data)

    def finish(self, total_bytes: int) -> None:
        """End the stream; missing bytes become a gap."""
        if not self.dropped_unread:
            self._skip_to(total_bytes)
            self.ended = True

    @property
    def full(self) -> bool:
        """Whether the buffer is full, so that nothing more is received."""
        return self.unread_bytes >= UNREAD_BYTES and not self.dropped_unread

    @property
    def needs_refetch(self) -> bool:
        """Whether a reader waits for output that was dropped here."""
        return self.dropped_unread and self.waiting_readers > 0 and not self._unread

    def _skip_to(self, offset: int) -> None:
        if offset > self.received:
            self.gaps.append(Gap(self.received, offset - self.received))
            self.received = offset

    def _take(self) -> bytes:
        was_full = self.full
        offset, data = self._unread.popleft()
        self.unread_bytes -= len(data)
        self.offset = offset + len(data)
        self.taken_at = asyncio.get_running_loop().time()
        if was_full:
            self._receiver.announce()
        return data
