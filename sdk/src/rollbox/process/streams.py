"""The three streams of a process, as a program uses them."""

from __future__ import annotations

import codecs
from collections import deque
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, NamedTuple

from rollbox.errors import InvalidArgument

if TYPE_CHECKING:
    from rollbox.process.link import Link

UNREAD_BYTES = 2**18
"""What is kept of a stream that nobody takes at the moment; a message of the gateway may lie over it."""
# A line without end is handed out in pieces: the command's author decides how long it gets.
_LINE_CHARS = 2**20


class Gap(NamedTuple):
    """Bytes of a stream that are lost: the sandbox no longer had them when they were asked for."""

    offset: int
    lost_bytes: int


class OutputStream:
    """stdout or stderr of a process: an asynchronous iterator of bytes that ends with the command.

    For one reader. What is not read waits in the sandbox (and the command with it, as on a pipe); a reader that takes
    nothing for 10 s while the program waits for something else of the same process (or less than 26 KiB/s all the time)
    counts as gone, and so does a stream that nobody ever read. What the sandbox had to let go of meanwhile is told in
    `gaps`: nothing is made up.

    Attributes:
        gaps: what was lost so far.
        offset: of the next byte that will be read; `processes.attach` continues there.
    """

    def __init__(self, link: Link, offset: int) -> None:
        """Made by the process."""
        self.gaps: list[Gap] = []
        self.offset = offset
        self.received = offset
        self.ended = False
        self.begun = False
        # Set when bytes were left out because nobody took them: they are asked for again when somebody does.
        self.behind = False
        self.wanted = 0
        self.taken_at = 0.0
        self.unread_bytes = 0
        self._unread: deque[tuple[int, bytes]] = deque()
        self._link = link

    def __aiter__(self) -> OutputStream:
        return self

    async def __anext__(self) -> bytes:
        data = await self.next_bytes()
        if not data:
            raise StopAsyncIteration
        return data

    async def next_bytes(self) -> bytes:
        """Wait for bytes and return them; none at the end. Cancel safety: nothing is lost."""
        self.begun = True
        self.wanted += 1
        try:
            await self._link.until(lambda: bool(self._unread) or self.ended)
        finally:
            self.wanted -= 1
        if self._unread:
            return self._take()
        self.offset = self.received
        return b""

    async def read(self) -> bytes:
        """Return all up to the end, in memory."""
        return b"".join([part async for part in self])

    async def text(self) -> AsyncIterator[str]:
        """Iterate over text: UTF-8, invalid bytes replaced, characters that a message cut in two put together."""
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
        """Keep what came; a repeat is cut off, a jump is a gap."""
        if self.behind:
            return
        data = data[max(0, self.received - offset) :]
        if not data:
            return
        self._skip_to(offset)
        self._unread.append((self.received, data))
        self.received += len(data)
        self.unread_bytes += len(data)

    def finish(self, total_bytes: int) -> None:
        """Nothing more will come; what is missing is a gap."""
        if not self.behind:
            self._skip_to(total_bytes)
            self.ended = True

    @property
    def full(self) -> bool:
        """Whether so much is unread that no more is taken."""
        return self.unread_bytes >= UNREAD_BYTES and not self.behind

    @property
    def asks_again(self) -> bool:
        """Whether a reader waits for bytes that were left out."""
        return self.behind and self.wanted > 0 and not self._unread

    def _skip_to(self, offset: int) -> None:
        if offset > self.received:
            self.gaps.append(Gap(self.received, offset - self.received))
            self.received = offset

    def _take(self) -> bytes:
        was_full = self.full
        offset, data = self._unread.popleft()
        self.unread_bytes -= len(data)
        self.offset = offset + len(data)
        self.taken_at = self._link.now()
        if was_full:
            self._link.announce()
        return data


class StdinWriter:
    """stdin of a process that was started with it."""

    def __init__(self, link: Link) -> None:
        """Made by the process."""
        self._link = link

    async def write(self, data: bytes | str) -> None:
        """Write; waits while the sandbox has not taken an earlier MiB, as on a full pipe.

        Raises:
            Conflict: the command has ended, or takes no more input.
        Cancel safety: a part may have been written.
        """
        if isinstance(data, str):
            data = data.encode()
        if not isinstance(data, bytes | bytearray | memoryview):
            raise InvalidArgument(f"stdin is {type(data).__name__}, not bytes or str")
        await self._link.write(bytes(data))

    async def write_eof(self) -> None:
        """Tell the command that nothing more will come. Idempotent."""
        await self._link.write_eof()

    async def drain(self) -> None:
        """Wait until the sandbox has all that was written."""
        await self._link.drain()
