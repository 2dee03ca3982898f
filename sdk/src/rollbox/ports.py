"""The ports of a sandbox: their addresses for other programs, and raw connections from this one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Literal, Self

import aiohttp
from yarl import URL

from rollbox import request
from rollbox._problem import SandboxError
from rollbox.deadline import Deadline
from rollbox.errors import InvalidArgument, PortUnreachable, StreamInterrupted
from rollbox.gateway import Gateway, SandboxAccess
from rollbox.printable import what_broke
from rollbox.transport import abort, error_from_problem

_CHUNK_BYTES: Final = 2**16
# Messages buffered for a slow reader, 4 MiB at most; no more are received then (backpressure).
_QUEUE: Final = 64
# The gateway pings every 5 s; after so long without a message it counts as gone.
_SILENCE_S: Final = 15.0
# While this program does not read, it pings the gateway, which cuts off one that reads nothing for _READER_LIMIT_S.
_PING_S: Final = 5.0
_PING_LIMIT_S: Final = 0.1
_READER_LIMIT_S: Final = 30.0
# A connection that breaks within this time after a slow read was cut off for it; later there is another cause.
_BLAME_S: Final = 60.0
# The longest wait in one request; a longer one takes several requests.
_WAIT_S: Final = 20.0
_MOST_DATAGRAM_BYTES: Final = 65_507
_CREDENTIAL_HEADER: Final = "X-Rollbox-Token"
_GOES_ON: Final = 1012
_NOTHING: Final = "Start the server first, on 127.0.0.1 or 0.0.0.0; where it takes longer to start, raise timeout."
_AGAIN: Final = "Connect again: what was sent and not answered may or may not have arrived."


@dataclass(frozen=True, slots=True)
class Exposed:
    """The addresses of a port for HTTP and WebSocket clients.

    Attributes:
        url: its URL below the gateway's; ends with a slash.
        headers: what every request must have; empty for a public port. They are a credential for the whole sandbox.
        public: whether anyone may reach it.
        host_url: its URL with a host name of its own, which browsers isolate; None where the installation has none.
    """

    url: str
    headers: Mapping[str, str]
    public: bool
    host_url: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return all fields as JSON, with the credential."""
        return {"url": self.url, "host_url": self.host_url, "public": self.public, "headers": dict(self.headers)}


class Ports:
    """The ports of one sandbox. Get it as `sandbox.ports`."""

    def __init__(self, gateway: Gateway, access: SandboxAccess) -> None:
        """Use `sandbox.ports` instead."""
        self._gateway = gateway
        self._access = access

    async def expose(self, port: int, public: bool = False) -> Exposed:
        """Return the addresses of a port; with `public`, let anyone reach it until `close` or the sandbox's end.

        Nothing needs to listen yet: `wait` for it. Without `public`, a public port becomes private again.
        """
        visibility = "public" if public else "private"
        return self._exposed(await self._gateway.set_port(self._access, checked(port), visibility))

    async def close(self, port: int) -> Exposed:
        """Make a public port private again; open connections go on. Idempotent."""
        return self._exposed(await self._gateway.set_port(self._access, checked(port), None))

    async def wait(self, port: int, timeout: float = 60.0) -> None:  # noqa: ASYNC109
        """Return when something listens on a TCP port, on 127.0.0.1, ::1 or all addresses.

        The sidecar finds out by connecting: for a server that ends after one connection, use `connect_tcp` instead.

        Raises:
            PortUnreachable: nothing listened for `timeout` seconds.
        """
        checked(port)
        left_ms = request.milliseconds("timeout", timeout)
        deadline = Deadline(left_ms / 1000)
        while True:
            wait_ms = min(left_ms, int(_WAIT_S * 1000))
            query = [("wait_ms", str(wait_ms))]
            path = ("ports", str(port))
            answer = await self._gateway.call_sandbox(self._access, "GET", *path, query=query, deadline=deadline)
            if answer["listening"]:
                return
            left_ms = min(left_ms - wait_ms, round(deadline.left_s() * 1000))
            if left_ms <= 0:
                detail = f"nothing listened on port {port} for {timeout:g} s"
                sandbox_id = self._access.sandbox_id
                raise PortUnreachable(detail, hint=_NOTHING, details={"port": str(port)}, sandbox_id=sandbox_id)

    async def connect_tcp(self, port: int) -> PortStream:
        """Connect to a TCP port; close the returned stream, or use it as a context manager."""
        return PortStream(await self._open(port, "tcp"), self._access.sandbox_id)

    async def connect_udp(self, port: int) -> PortDatagrams:
        """Make a UDP socket whose peer is this port; close the returned object, or use it as a context manager."""
        return PortDatagrams(await self._open(port, "udp"), self._access.sandbox_id)

    async def _open(self, port: int, kind: Literal["tcp", "udp"]) -> aiohttp.ClientWebSocketResponse:
        return await self._gateway.open_port(self._access, checked(port), kind)

    def _exposed(self, body: Mapping[str, Any]) -> Exposed:
        base = URL(self._gateway.settings.url)
        public = body["visibility"] == "public"
        headers = {} if public else {_CREDENTIAL_HEADER: self._access.token}
        by_host = body.get("host_url")
        host_url = None if by_host is None else base.join(URL(by_host)).with_port(base.explicit_port)
        url = base.join(URL(body["url"]))
        return Exposed(str(url), headers, public, None if host_url is None else str(host_url))


class _Tunnel:
    """A WebSocket that a task reads, so that its pings are answered whatever the caller does."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse, sandbox_id: str) -> None:
        self._socket = socket
        self._sandbox_id = sandbox_id
        self._came: asyncio.Queue[bytes | None] = asyncio.Queue(_QUEUE)
        self._failure: SandboxError | None = None
        # The last time that the caller read nothing for too long: for how long, and when that ended.
        self._unread_s = 0.0
        self._read_at = 0.0
        self._reading = asyncio.create_task(self._read_all(), name="rollbox port")

    async def aclose(self) -> None:
        """Close the connection. Idempotent."""
        self._reading.cancel()
        await asyncio.wait([self._reading])
        await self._socket.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _next(self) -> bytes | None:
        """Return the next message; None at the end, also for later calls."""
        over = self._came.empty() and self._reading.done()
        item = None if over else await self._came.get()
        if item is None and self._failure is not None:
            raise self._failure
        return item

    async def _send(self, data: bytes) -> None:
        try:
            await self._socket.send_bytes(data)
        except (OSError, aiohttp.ClientError) as error:
            raise self._failure or self._lost(what_broke(error)) from error
        # A send that waits for buffer space returns without an error when the silent connection is aborted meanwhile.
        if self._failure is not None:
            raise self._failure

    async def _read_all(self) -> None:
        try:
            while (data := await self._message()) is not None:
                await self._keep(data)
        except SandboxError as error:
            self._failure = error
        finally:
            # Wakes a waiting reader; while the queue is full, none waits.
            if not self._came.full():
                self._came.put_nowait(None)

    async def _keep(self, data: bytes) -> None:
        """Queue a message; nothing is received while the queue is full, so pings tell the gateway of this program."""
        began = asyncio.get_running_loop().time()
        kept = False
        while not kept:
            with suppress(TimeoutError):
                async with asyncio.timeout(_PING_S):
                    await self._came.put(data)
                    kept = True
            if not kept:
                # Bounded: the server may read nothing until this program reads.
                with suppress(TimeoutError, OSError, aiohttp.ClientError):
                    async with asyncio.timeout(_PING_LIMIT_S):
                        await self._socket.ping()
        now = asyncio.get_running_loop().time()
        if now - began >= _READER_LIMIT_S:
            self._unread_s, self._read_at = now - began, now

    async def _message(self) -> bytes | None:
        try:
            message = await self._socket.receive(timeout=_SILENCE_S)
        except TimeoutError as error:
            abort(self._socket)
            raise self._lost(f"the gateway sent nothing for {_SILENCE_S:.0f} s") from error
        if message.type is aiohttp.WSMsgType.BINARY:
            return bytes(message.data)
        if message.type is aiohttp.WSMsgType.TEXT:
            return self._word(json.loads(message.data))
        if message.type is aiohttp.WSMsgType.CLOSE and message.data == aiohttp.WSCloseCode.OK:
            return None
        why = "the gateway shut down" if message.data == _GOES_ON else f"the connection broke: {message.data!r}"
        raise self._lost(why)

    def _word(self, word: Mapping[str, Any]) -> bytes | None:
        if word.get("type") == "problem":
            error = error_from_problem(word, {})
            error.sandbox_id = self._sandbox_id
            if isinstance(error, StreamInterrupted):
                error.hint = _AGAIN
            raise error
        return None

    def _lost(self, why: str) -> StreamInterrupted:
        if self._unread_s and asyncio.get_running_loop().time() - self._read_at < _BLAME_S:
            why = (
                f"{why}, after nothing was read here for {self._unread_s:.0f} s: the gateway cuts off a reader that "
                f"takes nothing for {_READER_LIMIT_S:.0f} s; read all the time, or connect again when you read"
            )
        return StreamInterrupted(why, hint=_AGAIN, sandbox_id=self._sandbox_id)


class PortStream(_Tunnel):
    """A TCP connection to a port of a sandbox: bytes in both directions, each of which can be closed alone.

    Every method raises PortUnreachable when the server broke the connection, StreamInterrupted when the connection to
    the platform broke, and the cause when the sandbox ended. One reader and one writer at a time.
    """

    def __init__(self, socket: aiohttp.ClientWebSocketResponse, sandbox_id: str) -> None:
        """Use `sandbox.ports.connect_tcp` instead."""
        super().__init__(socket, sandbox_id)
        self._rest = b""

    async def read(self, most_bytes: int = _CHUNK_BYTES) -> bytes:
        """Return received bytes, at most `most_bytes`; waits for some. Empty when the server has closed its side."""
        if not self._rest:
            self._rest = await self._next() or b""
        data, self._rest = self._rest[:most_bytes], self._rest[most_bytes:]
        return data

    async def write(self, data: bytes) -> None:
        """Send bytes; waits while the server does not read."""
        for at in range(0, len(data), _CHUNK_BYTES):
            await self._send(bytes(data[at : at + _CHUNK_BYTES]))

    async def write_eof(self) -> None:
        """Close the sending direction; reading goes on."""
        try:
            await self._socket.send_str('{"type":"eof"}')
        except (OSError, aiohttp.ClientError) as error:
            raise self._failure or self._lost(what_broke(error)) from error


class PortDatagrams(_Tunnel):
    """A UDP socket whose peer is a port of a sandbox. Errors as for `PortStream`; datagrams may get lost."""

    async def send(self, data: bytes) -> None:
        """Send one datagram.

        Raises:
            InvalidArgument: it has more than 65507 bytes.
        """
        if len(data) > _MOST_DATAGRAM_BYTES:
            raise InvalidArgument(f"a datagram of {len(data)} bytes is larger than {_MOST_DATAGRAM_BYTES}")
        await self._send(bytes(data))

    async def receive(self) -> bytes:
        """Return the next datagram; waits for it."""
        data = await self._next()
        if data is None:
            raise self._lost("the connection was closed")
        return data


def checked(port: int) -> int:
    """Return the port.

    Raises:
        InvalidArgument: it is not a whole number from 1 to 65535.
    """
    if isinstance(port, bool) or not isinstance(port, int) or not 1 <= port <= 65_535:
        raise InvalidArgument(f"port {port!r} is not a whole number from 1 to 65535")
    return port
