"""Request bodies that are read again for each attempt, in pieces, without blocking the event loop."""

from __future__ import annotations

import asyncio
import hashlib
import os
import stat
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import BinaryIO, TypeAlias

from rollbox.errors import InvalidArgument
from rollbox.landing import failed
from rollbox.request import Readable, untilded
from rollbox.transport import Source

PIECE_BYTES = 2**20
# Sent with the head of its request, in one piece.
SMALL_BYTES = 2**16
_BEHIND_BYTES = 2**19
Progress: TypeAlias = Callable[[int], None]
"""Called with the bytes moved so far."""


class Hashed:
    """A source that is counted and hashed while it is sent, unless its digest is known; restarts with each attempt.

    Attributes:
        size_bytes, sha256: of the current attempt, or of the last one.
    """

    def __init__(self, source: Source, progress: Progress | None = None, known: str | None = None) -> None:
        self.size_bytes = 0
        self._digest = hashlib.sha256()
        self._source = source
        self._progress = progress
        self._known = known

    @property
    def sha256(self) -> str:
        """The digest, hexadecimal."""
        return self._known or self._digest.hexdigest()

    async def chunks(self) -> AsyncIterator[bytes]:
        """Make the body of one attempt."""
        self.size_bytes, self._digest = 0, hashlib.sha256()
        async for chunk in self._source():
            if self._known is None:
                self._digest.update(chunk)
            self.size_bytes += len(chunk)
            yield chunk
            if self._progress is not None:
                self._progress(self.size_bytes)


async def sha256(data: bytes) -> str:
    """Return the digest in hexadecimal; that of more than a MiB is computed in a thread."""
    made = hashlib.sha256(data) if len(data) <= PIECE_BYTES else await asyncio.to_thread(hashlib.sha256, data)
    return made.hexdigest()


def of_bytes(data: bytes) -> Source:
    """A source of bytes, in pieces; it can be read again."""

    async def chunks() -> AsyncIterator[bytes]:
        for start in range(0, len(data), PIECE_BYTES):
            yield data[start : start + PIECE_BYTES]

    return chunks


def of_iterator(data: AsyncIterable[bytes]) -> Source:
    """A source from an asynchronous iterator, for one attempt only."""
    used = False

    async def chunks() -> AsyncIterator[bytes]:
        nonlocal used
        if used:
            hint = "Call write again with a fresh iterator; the old file is unchanged."
            raise InvalidArgument("the connection broke, and an iterator cannot be read again", hint=hint)
        used = True
        async for chunk in data:
            yield chunk

    return chunks


def of_file(file: Readable, name: str = "the data") -> AsyncIterator[bytes]:
    """Iterate over an open file from its current position on.

    Raises:
        InvalidArgument: this machine cannot read it (any more), as `failed` says.
    """

    def piece() -> bytes:
        try:
            return file.read(PIECE_BYTES)
        except OSError as error:
            raise failed(f"{name} cannot be read here", error) from error

    return in_thread(iter(piece, b""))


def of_path(path: Path) -> Source:
    """A source from a local file, which is opened for each attempt."""

    async def chunks() -> AsyncIterator[bytes]:
        with await asyncio.to_thread(opened, path) as file:
            async for chunk in of_file(file, str(path)):
                yield chunk

    return chunks


def opened(path: Path) -> BinaryIO:
    """Open a regular local file to read.

    Raises:
        InvalidArgument: it is missing, cannot be read, or is something else.
    """
    untilded("the local path", str(path))
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise failed(f"{path} cannot be read here", error) from error
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise InvalidArgument(f"{path} is not a regular file", hint="Use upload_dir (`rollbox cp -r`) for a directory.")
    return os.fdopen(file, "rb", buffering=0)


class WriteBehind:
    """Writes behind: passes parts to a blocking consumer in a thread while the next parts arrive.

    Parts go in batches, since a switch to a thread costs as much as writing several of them. Buffers half a MiB that is
    being written and as much that arrives. Close it before the consumer.
    """

    def __init__(self, take: Callable[[bytes], None]) -> None:
        self._take = take
        self._parts: list[bytes] = []
        self._held_bytes = 0
        self._working: asyncio.Future[None] | None = None

    async def put(self, part: bytes) -> None:
        """Buffer a part; raises the consumer's error for an earlier one."""
        self._parts.append(part)
        self._held_bytes += len(part)
        if self._held_bytes >= _BEHIND_BYTES:
            await self._begin()

    async def finish(self) -> None:
        """Wait until the consumer has taken all parts; raises its error."""
        await self._begin()
        await self._done()

    async def aclose(self) -> None:
        """Wait for the batch in progress, also after a cancelled `finish`, and drop the rest. Idempotent."""
        if self._working is not None:
            await asyncio.wait([self._working])
            # Retrieved, so that asyncio does not log it: put or finish raise it, unless they were cancelled.
            self._working.exception()

    async def _begin(self) -> None:
        await self._done()
        parts, self._parts, self._held_bytes = self._parts, [], 0
        self._working = asyncio.ensure_future(asyncio.to_thread(self._pass_on, parts))

    async def _done(self) -> None:
        if self._working is not None:
            await asyncio.shield(self._working)

    def _pass_on(self, parts: list[bytes]) -> None:
        for part in parts:
            self._take(part)


async def in_thread(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Iterate in the event loop's threads, one switch for each piece."""
    while piece := await asyncio.to_thread(next, pieces, b""):
        yield piece
