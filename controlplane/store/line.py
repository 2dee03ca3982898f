"""One connection to a Redis for scripts and the feed: hiredis packs and reads, asyncio carries the bytes.

redis-py, which the other calls use, reads one reply at a time and cannot let a subscription rest: ``tests/bench/ab``
measures what that costs (docs/benchmarks.md). Only its URLs, TLS settings and errors are used here, all public.
"""

import asyncio
import socket
import ssl
from typing import Any, Final, cast

import hiredis
from redis import exceptions
from redis.asyncio.connection import SSLConnection, parse_url
from redis.exceptions import ConnectionError as AwayError
from redis.exceptions import TimeoutError as SlowError

_CHUNK_BYTES: Final = 64 * 1024
_MORE: Final = object()
# The first words of error replies that a caller tells apart; all others are ``ResponseError``.
_ERRORS: Final[dict[str, type[Exception]]] = {
    "LOADING": exceptions.BusyLoadingError,
    "MASTERDOWN": exceptions.MasterDownError,
    "NOAUTH": exceptions.AuthenticationError,
    "NOSCRIPT": exceptions.NoScriptError,
    "WRONGPASS": exceptions.AuthenticationError,
}
_FULL: Final = "max number of clients reached"

# A reply of Redis; an error reply is an ``Exception``.
Reply = str | int | Exception | list["Reply"] | None


def command(*words: str | int) -> bytes:
    """One command in Redis' wire format."""
    packed: bytes = hiredis.pack_command(words)  # type: ignore[arg-type]  # its types name one word only
    return packed


def _error(text: str) -> Exception:
    """Without the word ``ERR``, as redis-py has it: a script's own word comes first then."""
    told = text.removeprefix("ERR ")
    if told == _FULL:
        return AwayError(told)
    return _ERRORS.get(told.partition(" ")[0], exceptions.ResponseError)(told)


def _replies() -> hiredis.Reader:
    return hiredis.Reader(
        protocolError=exceptions.InvalidResponse, replyError=_error, encoding="utf-8", notEnoughData=_MORE
    )


class Line:
    """A connection for one caller at a time; opened when it is first used, and again after a failure.

    Args:
        url: ``redis://``, ``rediss://`` or ``unix://``.
        timeout_s: for connecting, and for all replies to one message.
    """

    def __init__(self, url: str, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._at: dict[str, Any] = dict(parse_url(url))
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._come = _replies()

    async def exchange(self, message: bytes, count: int) -> list[Reply]:
        """Sends commands and reads ``count`` replies. A failure or a cancellation closes the connection.

        Raises:
            SlowError, AwayError: the replies did not come; the commands may have been executed.
        """
        answers: list[Reply] | None = None
        try:
            if self._streams is None:
                async with asyncio.timeout(self._timeout_s):
                    await self._open()
            async with asyncio.timeout(self._timeout_s):
                answers = await self._asked(message, count)
        except TimeoutError:
            raise SlowError(f"no answer within {self._timeout_s:g} s") from None
        except OSError as error:
            raise AwayError(f"no connection to Redis: {error}") from error
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
                found = await self._read(1)
        except TimeoutError:
            raise SlowError(f"no message for {within_s:g} s") from None
        while (one := self._come.gets()) is not _MORE:
            found.append(one)
        return found

    async def rest(self, for_s: float) -> None:
        """Reads nothing for ``for_s``, so that the messages of that time wake this process only once."""
        if self._streams is None or self._streams[1].is_closing():
            return
        # The transport of a stream can read and write, whatever its declared type is.
        transport = cast("asyncio.Transport", self._streams[1].transport)
        transport.pause_reading()
        try:
            await asyncio.sleep(for_s)
        finally:
            if not transport.is_closing():
                transport.resume_reading()

    async def close(self) -> None:
        """Closes the connection at once; the next use opens it again."""
        if self._streams is not None:
            self._streams[1].transport.abort()
        self._streams, self._come = None, _replies()

    async def _open(self) -> None:
        if "path" in self._at:
            self._streams = await asyncio.open_unix_connection(self._at["path"])
        else:
            host, port = self._at.get("host", "localhost"), self._at.get("port", 6379)
            self._streams = await asyncio.open_connection(host, port, ssl=self._tls())
            self._streams[1].get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if greeting := self._greeting():
            for answer in await self._asked(b"".join(greeting), len(greeting)):
                if isinstance(answer, Exception):
                    raise answer

    def _tls(self) -> ssl.SSLContext | None:
        if self._at.get("connection_class") is not SSLConnection:
            return None
        options = {name: value for name, value in self._at.items() if name.startswith("ssl_")}
        return SSLConnection(**options).ssl_context.get()

    def _greeting(self) -> list[bytes]:
        user, password, name, db = (self._at.get(one) for one in ("username", "password", "client_name", "db"))
        words: list[tuple[str | int, ...]] = []
        if user or password:
            words.append(("AUTH", *([user] if user else []), password or ""))
        if name:
            words.append(("CLIENT", "SETNAME", name))
        if db:
            words.append(("SELECT", db))
        return [command(*one) for one in words]

    async def _asked(self, message: bytes, count: int) -> list[Reply]:
        if self._streams is None:
            raise AwayError("Redis has closed the connection")
        self._streams[1].write(message)
        await self._streams[1].drain()
        return await self._read(count)

    async def _read(self, count: int) -> list[Reply]:
        found: list[Reply] = []
        while len(found) < count:
            one = self._come.gets()
            if one is not _MORE:
                found.append(one)
                continue
            data = b"" if self._streams is None else await self._streams[0].read(_CHUNK_BYTES)
            if not data:
                raise AwayError("Redis has closed the connection")
            self._come.feed(data)
        return found
