"""The input of a process, as a program uses it."""

from __future__ import annotations

from rollbox.errors import InvalidArgument
from rollbox.process.connection import Connection


class StdinWriter:
    """stdin of a process that was spawned with `stdin=True`."""

    def __init__(self, connection: Connection) -> None:
        """Use `Process.stdin` instead."""
        self._connection = connection

    async def write(self, data: bytes | str) -> None:
        """Write; waits while the sandbox has not acknowledged an earlier MiB, as on a full pipe.

        Raises:
            Conflict: the command has ended, or takes no more input.
            InvalidArgument: it is neither bytes nor text.
        Cancel safety: a part may have been written.
        """
        if isinstance(data, str):
            data = data.encode()
        if not isinstance(data, bytes | bytearray | memoryview):
            raise InvalidArgument(f"stdin is {type(data).__name__}, not bytes or str")
        await self._connection.write(bytes(data))

    async def write_eof(self) -> None:
        """Close the command's stdin. Idempotent."""
        await self._connection.write_eof()

    async def drain(self) -> None:
        """Wait until the sandbox has all that was written."""
        await self._connection.drain()
