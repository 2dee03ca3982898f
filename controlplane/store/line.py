"""One connection to a Redis: the client library opens it (address, TLS, password); commands go past the library.

This takes three parts of the library that are not public: the base of its parsers, and the two streams of a connection.
So its minor version is fixed, a test fails for one that has them no more, and `tests/bench/ab` measures what they save
(docs/benchmarks.md).
"""

import asyncio
from typing import Any, Final, cast

import hiredis
from redis.asyncio.connection import AbstractConnection, Connection, parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as AwayError
from redis.exceptions import InvalidResponse
from redis.exceptions import TimeoutError as SlowError

# The only way to get at a connection's streams: its parser is called with the connection when that is open.
from redis._parsers import BaseParser  # isort: skip

_CHUNK_BYTES: Final = 64 * 1024
# Options of a URL that are meant for connection pools.
_OF_POOLS: Final = ("max_connections", "timeout")
_MORE: Final = object()

# A reply of Redis; an error reply is an ``Exception``.
Reply = str | int | Exception | list["Reply"] | None


def command(*words: str | int) -> bytes:
    """One command in Redis' wire format."""
    packed: bytes = hiredis.pack_command(words)  # type: ignore[arg-type]  # its types name one word only
    return packed


class _Reader(BaseParser):
    """Reads replies; the client library calls ``read_response`` for one at a time while it opens the connection."""

    def __init__(self) -> None:
        self.reader: asyncio.StreamReader | None = None
        self.writer: asyncio.StreamWriter | None = None
        self._come = self._nothing()

    def on_connect(self, connection: AbstractConnection) -> None:
        reader, writer = getattr(connection, "_reader", None), getattr(connection, "_writer", None)
        if not isinstance(reader, asyncio.StreamReader) or not isinstance(writer, asyncio.StreamWriter):
            # No OSError and none of the library's errors: those mean that Redis is away, and are tried again.
            raise TypeError("this redis-py keeps the streams of a connection elsewhere: install the pinned version")
        self.reader, self.writer, self._come = reader, writer, self._nothing()

    def on_disconnect(self) -> None:
        self.reader = self.writer = None

    def _nothing(self) -> hiredis.Reader:
        return hiredis.Reader(
            protocolError=InvalidResponse, replyError=self.parse_error, encoding="utf-8", notEnoughData=_MORE
        )

    async def read_response(self, disable_decoding: bool = False, push_request: bool | None = False) -> Any:  # noqa: ANN401 - the client's hook
        del disable_decoding, push_request
        return (await self.read(1))[0]

    async def asked(self, message: bytes, count: int) -> list[Reply]:
        if self.writer is None:
            raise AwayError("Redis has closed the connection")
        self.writer.write(message)
        await self.writer.drain()
        return await self.read(count)

    def here(self) -> list[Reply]:
        """The replies that have been received already."""
        found: list[Reply] = []
        while (one := self._come.gets()) is not _MORE:
            found.append(one)
        return found

    async def read(self, count: int) -> list[Reply]:
        found: list[Reply] = []
        while len(found) < count:
            one = self._come.gets()
            if one is not _MORE:
                found.append(one)
                continue
            data = b"" if self.reader is None else await self.reader.read(_CHUNK_BYTES)
            if not data:
                raise AwayError("Redis has closed the connection")
            self._come.feed(data)
        return found


class Line:
    """A connection for one caller at a time; opened when it is first used, and again after a failure.

    Args:
        url: ``redis://``, ``rediss://`` or ``unix://``.
        timeout_s: for connecting, and for all replies to one message.
    """

    def __init__(self, url: str, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._replies = _Reader()
        options: dict[str, Any] = {name: value for name, value in parse_url(url).items() if name not in _OF_POOLS}
        kind: type[AbstractConnection] = options.pop("connection_class", Connection)
        self._connection = kind(
            **{
                **options,
                "protocol": 2,
                "parser_class": lambda **_: self._replies,
                "socket_timeout": timeout_s,
                "socket_connect_timeout": timeout_s,
                "retry": Retry(NoBackoff(), 0),
            }
        )

    async def exchange(self, message: bytes, count: int) -> list[Reply]:
        """Sends commands and reads ``count`` replies. A failure or a cancellation closes the connection.

        Raises:
            SlowError, AwayError: the replies did not come; the commands may have been executed.
        """
        answers: list[Reply] | None = None
        try:
            if self._replies.writer is None:
                await self._connection.connect()  # type: ignore[no-untyped-call,unused-ignore]
            async with asyncio.timeout(self._timeout_s):
                answers = await self._replies.asked(message, count)
        except TimeoutError:
            raise SlowError(f"no answer within {self._timeout_s:g} s") from None
        except OSError as error:
            raise AwayError(f"Redis has closed the connection: {error}") from error
        finally:
            if answers is None:
                # A late reply must not be taken for the reply to another command.
                await self.close()
        return answers

    async def some(self, within_s: float) -> list[Reply]:
        """All replies that have been received, at least one.

        Raises:
            SlowError: none came in time; the connection stays open.
        """
        try:
            async with asyncio.timeout(within_s):
                first = await self._replies.read(1)
        except TimeoutError:
            raise SlowError(f"no message for {within_s:g} s") from None
        return first + self._replies.here()

    async def rest(self, for_s: float) -> None:
        """Reads nothing for ``for_s``, so that the messages of that time wake this process only once."""
        if self._replies.writer is None or self._replies.writer.is_closing():
            return
        # The transport of a stream can read and write, whatever its declared type is.
        transport = cast("asyncio.Transport", self._replies.writer.transport)
        transport.pause_reading()
        try:
            await asyncio.sleep(for_s)
        finally:
            if not transport.is_closing():
                transport.resume_reading()

    async def close(self) -> None:
        """Closes the connection; the next use opens it again."""
        await self._connection.disconnect(nowait=True)
