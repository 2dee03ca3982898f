"""The output streams of a process, as a program uses them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Generic, NamedTuple, Protocol, TypeVar

from rollbox.request import milliseconds

_T = TypeVar("_T")

UNREAD_BYTES = 2**18
"""How much unread output of a stream is buffered here; one message of the gateway may exceed it."""
TAIL_BYTES = 2**16
"""How much of the end of a stream the result of a process has."""
# A longer line is returned in pieces: the command is not trusted to end it.
_LINE_BYTES = 2**20


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

    Every way to read may be cancelled, by `asyncio.timeout` too, or has a `timeout` of its own: what has come is there
    for the next read, whichever way that is. After the end every way says so again, and never waits.

    Attributes:
        gaps: what was lost so far.
    """

    def __init__(self, receiver: Receiver, offset: int) -> None:
        """Use `Process.stdout` or `Process.stderr` instead."""
        self.gaps: list[Gap] = []
        self.received = offset
        self.ended = False
        self.was_read = False
        # Set when output was dropped here for lack of a reader; it is fetched again when the stream is read.
        self.dropped_unread = False
        self.waiting_readers = 0
        self.taken_at = 0.0
        self.unread_bytes = 0
        self._unread: deque[tuple[int, bytes]] = deque()
        # Taken from what is unread, and not returned yet: half a line, half a character.
        self._held = bytearray()
        self._offset = offset
        self._tail: deque[bytes] = deque()
        self._tail_bytes = 0
        self._receiver = receiver

    def __aiter__(self) -> OutputStream:
        return self

    async def __anext__(self) -> bytes:
        data = await self.next_bytes()
        if not data:
            raise StopAsyncIteration
        return data

    @property
    def offset(self) -> int:
        """The offset of the next byte that will be read; `processes.attach` continues there."""
        return self._offset

    async def next_bytes(self, *, timeout: float | None = None) -> bytes:  # noqa: ASYNC109
        """Wait for bytes and return them; empty at the end.

        Args:
            timeout: seconds to wait; None: without limit.

        Raises:
            TimeoutError: none came in time; nothing is lost.
        """
        async with limited(timeout):
            if not self._held:
                await self._more()
        return self._taken(len(self._held))

    async def read(self, *, timeout: float | None = None) -> bytes:  # noqa: ASYNC109
        """Return all output up to the end, in memory; `timeout` as for `next_bytes`."""
        async with limited(timeout):
            while await self._more():
                pass
        return self._taken(len(self._held))

    async def readline(self, *, timeout: float | None = None) -> str | None:  # noqa: ASYNC109
        r"""Return the next line without its \n, as UTF-8 with invalid bytes replaced; None at the end.

        A line over a MiB comes in pieces. `timeout` as for `next_bytes`.
        """
        looked = 0
        async with limited(timeout):
            while (end := self._held.find(b"\n", looked)) < 0 and len(self._held) < _LINE_BYTES:
                looked = len(self._held)
                if not await self._more():
                    break
        if end >= 0:
            return self._taken(end + 1)[:-1].decode("utf-8", "replace")
        if not self._held:
            return None
        part = len(self._held) if self.ended and not self._unread else _whole(self._held)
        return self._taken(part).decode("utf-8", "replace")

    def text(self) -> AsyncIterator[str]:
        """Iterate over text: UTF-8, invalid bytes replaced, characters split between messages joined."""
        return _Reads(self._next_text)

    def lines(self) -> AsyncIterator[str]:
        """Iterate over lines, as `readline` returns them."""
        return _Reads(self.readline)

    async def _next_text(self) -> str | None:
        while (part := _whole(self._held)) == 0:
            if not await self._more():
                part = len(self._held)
                break
        return self._taken(part).decode("utf-8", "replace") if part else None

    async def _more(self) -> bool:
        """Wait for bytes and hold them; returns False at the end."""
        self.was_read = True
        self.waiting_readers += 1
        try:
            await self._receiver.until(lambda: bool(self._unread) or self.ended)
        finally:
            self.waiting_readers -= 1
        if self._unread:
            self._take()
            return True
        if not self._held:
            self._offset = self.received
        return False

    def _taken(self, size: int) -> bytes:
        taken = bytes(self._held[:size])
        del self._held[:size]
        self._offset += len(taken)
        return taken

    def tail(self) -> bytes:
        """Return the last 64 KiB that came, read or not."""
        return b"".join(self._tail)[-TAIL_BYTES:]

    def arrived(self, offset: int, data: bytes) -> None:
        """Buffer received data; bytes that were received before are cut off, skipped ones become a gap."""
        if self.dropped_unread:
            self._remember(data)
            return
        data = data[max(0, self.received - offset) :]
        if not data:
            return
        self._skip_to(offset)
        self._unread.append((self.received, data))
        self.received += len(data)
        self.unread_bytes += len(data)
        self._remember(data)

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

    def _remember(self, data: bytes) -> None:
        self._tail.append(data)
        self._tail_bytes += len(data)
        while self._tail_bytes - len(self._tail[0]) >= TAIL_BYTES:
            self._tail_bytes -= len(self._tail.popleft())

    def _take(self) -> None:
        was_full = self.full
        offset, data = self._unread.popleft()
        self.unread_bytes -= len(data)
        if not self._held:
            self._offset = offset
        self._held += data
        self.taken_at = asyncio.get_running_loop().time()
        if was_full:
            self._receiver.announce()


class _Reads(Generic[_T]):
    """An iteration over reads that a cancelled step does not end, unlike one of a generator."""

    def __init__(self, read: Callable[[], Awaitable[_T | None]]) -> None:
        self._read = read

    def __aiter__(self) -> _Reads[_T]:
        return self

    async def __anext__(self) -> _T:
        found = await self._read()
        if found is None:
            raise StopAsyncIteration
        return found


def limited(timeout_s: float | None) -> AbstractAsyncContextManager[object]:
    """Limit what is awaited to so many seconds, with a TimeoutError after them; None: without limit."""
    return nullcontext() if timeout_s is None else asyncio.timeout(milliseconds("timeout", timeout_s) / 1000)


def _whole(data: bytearray) -> int:
    """Return how many of the bytes are no beginning of a character at the end."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 != 0x80:
            size = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
            return len(data) - back if size > back else len(data)
    return len(data)
