"""HTTP to one gateway from one event loop; every failure is a SandboxError. Knows no routes.

Three kinds of calls: `send` (a request in, JSON out), `exchange` (streamed bodies), `websocket`.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from io import BytesIO
from typing import Any, NamedTuple, TypeAlias

import aiohttp
from yarl import URL

from rollbox import tracing
from rollbox._problem import SandboxError
from rollbox._version import __version__
from rollbox.errors import BY_CODE, Internal, InvalidArgument, NotFound, StreamInterrupted, UpstreamTimeout
from rollbox.printable import what_broke

try:
    import resource
except ImportError:  # Windows, which has no such limit
    resource = None  # type: ignore[assignment]

# The codes for a proxy's answer without a problem body: the proxy may or may not have forwarded the request.
_NO_SUCH_ROUTE = (HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED)
_CODE_OF_STATUS = {502: "stream_interrupted", 503: "draining", 504: "upstream_timeout", 413: "payload_too_large"}
OLDER = "The platform there is older than this client, or ROLLBOX_URL is no platform: upgrade it, or do without."
"""The hint of an error whose cause is a route that the platform does not have."""
_NO_GATEWAY = "Start one on this machine with `rollbox up`, or set ROLLBOX_URL to the address of a running gateway."
_NOT_ROLLBOX = "Another server, or a proxy, answers at this address: set ROLLBOX_URL to that of a gateway of rollbox."
_UNTRUSTED = (
    "Name a file with the certificate of its authority in SSL_CERT_FILE, or set ROLLBOX_URL to a name that the "
    "certificate is for."
)
_TLS_ALONE = "Set ROLLBOX_URL to https://."
# How an alert of TLS begins, in the message of aiohttp about it.
_ALERT = r"\x15\x03"
_NO_TLS = "Set ROLLBOX_URL to the port of the gateway that has TLS, or to http:// where it has none."
_FORKED = "Here, get the sandbox anew with Sandbox.connect(id), or make another Client."
_CLOSED = "Use a sandbox within its `async with` and its event loop, or get it anew with Sandbox.connect(id)."
_CONNECT_TIMEOUT_S = 10.0
_MOST_CONNECTIONS = 4096
# aiohttp warns about larger bodies in one piece, since writing them would block the event loop.
_ONE_PIECE_BYTES = 2**20
# The limit for a transfer without progress in either direction; that of the gateway is 30 s.
_IDLE_LIMIT_S = 45.0
# TCP_USER_TIMEOUT: the limit for sent data that the peer does not acknowledge.
_UNHEARD_MS = 30_000
# A message of the gateway has at most 1 MiB and a header.
_MESSAGE_BYTES = 2**22
_WS_TIMEOUT = aiohttp.ClientWSTimeout(ws_receive=None, ws_close=2.0)

Source: TypeAlias = Callable[[], AsyncIterator[bytes]]
"""Makes the body of one attempt: called again for each."""


class Answer(NamedTuple):
    """A 2xx answer: status, decoded body, headers."""

    status: int
    body: Any
    headers: Mapping[str, str]


class Body:
    """The streamed body of an answer. Raises StreamInterrupted when the connection breaks or is silent for too long.

    Attributes:
        headers: of the answer.
    """

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.headers: Mapping[str, str] = response.headers
        self._response = response

    async def exactly(self, count: int) -> bytes:
        """Read so many bytes."""
        return await self._reading(self._response.content.readexactly(count))

    async def line(self) -> bytes:
        """Read a line with its end; an empty one at the end of the body."""
        return await self._reading(self._response.content.readline())

    async def everything(self) -> bytes:
        """Read all."""
        return await self._reading(self._response.read())

    async def json(self) -> Any:  # noqa: ANN401
        """Read all as JSON."""
        return _decoded(await self._reading(self._response.read()), self._response.url)

    async def _reading(self, call: Awaitable[bytes]) -> bytes:
        try:
            return await call
        except (aiohttp.ClientError, TimeoutError, OSError, EOFError, ValueError) as error:
            raise StreamInterrupted(
                f"the answer of {self._response.url.path} broke off: {what_broke(error)}"
            ) from error


class Transport:
    """Connections to one gateway. Opened on the first request, on the loop of that request, and bound to it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._session: aiohttp.ClientSession | None = None
        # Without connections that are kept: each may go to another gateway than the one before.
        self._apart: aiohttp.ClientSession | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid: int | None = None
        self._closed = False
        self._sockets: set[aiohttp.ClientWebSocketResponse] = set()

    async def send(
        self,
        method: str,
        url: URL,
        credential: str,
        body: bytes | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        limit_s: float | None = None,
        whole: bool = False,
        apart: bool = False,
    ) -> Answer:
        """Send one request once.

        Args:
            method: GET, POST or DELETE.
            url: what to call.
            credential: API key or sandbox token.
            body: JSON, or None.
            headers: more headers.
            limit_s: give up after so many seconds of silence; None waits as long as the connection lives (`_socket`).
            whole: give up after `limit_s` in all, the wait for a free connection included.
            apart: at a new connection, which is closed afterwards: behind one address it may reach another gateway.

        Returns:
            the answer, when its status is below 300.

        Raises:
            SandboxError: the server's problem; UpstreamTimeout when there is no connection or `limit_s` passed;
                StreamInterrupted when the connection broke with the answer outstanding.
        Cancel safety: the connection is closed; the server may still carry out the request.
        """
        session = self._open_apart() if apart else self._open()
        sent = {"Authorization": f"Bearer {credential}", **tracing.headers(), **(headers or {})}
        if body is not None:
            sent["Content-Type"] = "application/json"
        data = BytesIO(body) if body is not None and len(body) > _ONE_PIECE_BYTES else body
        timeout = _PATIENT if limit_s is None else _timeout(limit_s, whole=whole)
        try:
            # A redirect would send the credential to an address that the caller did not choose.
            call = session.request(method, url, data=data, headers=sent, timeout=timeout, allow_redirects=False)
            async with call as response:
                raw = await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._broken(method, error, limit_s) from error
        if response.status >= HTTPStatus.MULTIPLE_CHOICES:
            raise error_from_response(response.status, raw, response.headers)
        return Answer(response.status, _decoded(raw, url), response.headers)

    @asynccontextmanager
    async def exchange(
        self,
        method: str,
        url: URL,
        credential: str,
        *,
        source: Source | bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> AsyncIterator[Body]:
        """Send a request whose body or answer is streamed; errors as `send`. Leaving early closes the connection.

        Args:
            method: of HTTP.
            url: with its query.
            credential: an API key or a sandbox's token.
            source: the body, which goes with the head in one piece, or makes it; what it raises is raised here, and the
                server sees an incomplete body.
            headers: beside those of every request.

        Yields:
            the body of the answer.
        """
        sent = {"Authorization": f"Bearer {credential}", **tracing.headers(), **(headers or {})}
        session = self._open()
        outgoing: _Outgoing | None = None
        try:
            async with asyncio.timeout(None if source is None else _IDLE_LIMIT_S) as scope:
                outgoing = _Outgoing(source, scope) if callable(source) else None
                data = source if outgoing is None else outgoing.chunks()
                call = session.request(method, url, data=data, headers=sent, timeout=_TRANSFER, allow_redirects=False)
                response = await call
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            if outgoing is not None and outgoing.failure is not None:
                raise outgoing.failure from None
            raise self._broken(method, error, _IDLE_LIMIT_S) from error
        finally:
            if outgoing is not None:
                outgoing.scope = None
        async with response:
            if response.status >= HTTPStatus.MULTIPLE_CHOICES:
                raise error_from_response(response.status, await response.read(), response.headers)
            yield Body(response)

    async def websocket(
        self, url: URL, credential: str, *, headers: Mapping[str, str] | None = None, autoping: bool = True
    ) -> aiohttp.ClientWebSocketResponse:
        """Open a WebSocket; the caller closes it. Errors as `send`; a refused handshake raises the server's problem.

        Args:
            url: with its query.
            credential: an API key or a sandbox's token.
            headers: beside those of every request.
            autoping: answer pings automatically; else they arrive as messages.
        """
        sent = {"Authorization": f"Bearer {credential}", **tracing.headers(), **(headers or {})}
        try:
            async with asyncio.timeout(_CONNECT_TIMEOUT_S):
                made = await self._open().ws_connect(
                    url, headers=sent, autoping=autoping, max_msg_size=_MESSAGE_BYTES, timeout=_WS_TIMEOUT
                )
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._broken("WebSocket handshake", error, _CONNECT_TIMEOUT_S) from error
        _let_wait(made)
        # WebSockets that their users did not close are closed in `aclose`.
        self._sockets = {known for known in self._sockets if not known.closed} | {made}
        return made

    async def aclose(self) -> None:
        """Close all connections. Idempotent; requests after it are refused."""
        self._closed = True
        await asyncio.gather(*(socket.close() for socket in self._sockets), return_exceptions=True)
        self._sockets.clear()
        for session in (self._session, self._apart):
            if session is not None:
                await session.close()
        self._session = self._apart = None

    def _open_apart(self) -> aiohttp.ClientSession:
        self._open()
        if self._apart is None:
            self._apart = _session(keep=False)
        return self._apart

    def _open(self) -> aiohttp.ClientSession:
        loop = asyncio.get_running_loop()
        if self._session is None:
            if self._closed:
                raise InvalidArgument(f"the client of {self.url} is closed", hint=_CLOSED)
            self._session = _session()
            self._loop, self._pid = loop, os.getpid()
        elif self._pid != os.getpid():
            detail = f"the client of {self.url} was opened before this process was forked from another one"
            raise InvalidArgument(detail, hint=_FORKED)
        elif self._loop is not loop:
            raise InvalidArgument(
                f"the client of {self.url} is used from a second event loop",
                hint="Make one Client for each event loop.",
            )
        return self._session

    def _tls_trouble(self, error: Exception) -> SandboxError | None:
        if isinstance(error, aiohttp.ClientConnectorCertificateError):
            return InvalidArgument(f"the certificate of {self.url} is not trusted: {_said(error)}", hint=_UNTRUSTED)
        if isinstance(error, aiohttp.ClientConnectorSSLError):
            return InvalidArgument(f"no connection by TLS to {self.url}: {_said(error)}", hint=_NO_TLS)
        if isinstance(error, aiohttp.ClientResponseError) and _ALERT in error.message:
            return InvalidArgument(f"{self.url} speaks TLS alone", hint=_TLS_ALONE)
        return None

    def _broken(self, method: str, error: Exception, limit_s: float | None) -> SandboxError:
        if isinstance(error, aiohttp.InvalidURL):
            return InvalidArgument(f"the gateway address {self.url!r} is not a URL")
        if (trouble := self._tls_trouble(error)) is not None:
            return trouble
        if isinstance(error, aiohttp.ClientConnectorError):
            reason = error.os_error.strerror or str(error.os_error)
            return UpstreamTimeout(f"no connection to {self.url}: {reason}", hint=_NO_GATEWAY)
        if isinstance(error, TimeoutError):
            waited = "while connecting" if limit_s is None else f"within {limit_s:g} s"
            return UpstreamTimeout(f"no answer from {self.url} to a {method} {waited}")
        return StreamInterrupted(f"the connection to {self.url} broke before the answer came: {what_broke(error)}")


def _said(error: aiohttp.ClientSSLError) -> str:
    """What OpenSSL says, without where in its source."""
    cause = getattr(error, "certificate_error", None) or error.os_error
    return str(getattr(cause, "verify_message", "") or getattr(cause, "reason", "") or cause)


def error_from_response(status: int, raw: bytes, headers: Mapping[str, str]) -> SandboxError:
    """Build the exception of an answer with status 300 or above.

    A body that is not a problem of the contract (a proxy's error page) gets a code by its status, and the beginning of
    the page as part of its detail.
    """
    try:
        body = json.loads(raw)
    except ValueError:
        body = None
    if not isinstance(body, dict) or not isinstance(body.get("code"), str):
        page = raw[:200].decode("utf-8", "replace").strip()
        kind = BY_CODE.get(_CODE_OF_STATUS.get(status, "internal"), Internal)
        detail = f"HTTP {status} without a problem body: {page!r}"
        # Every answer of a gateway has an id; an error of a server's own may be that of a proxy before one.
        if status < HTTPStatus.INTERNAL_SERVER_ERROR and kind is Internal and "X-Request-Id" not in headers:
            return NotFound(f"HTTP {status}, not from rollbox: {page!r}", hint=_NOT_ROLLBOX)
        return kind(detail, request_id=headers.get("X-Request-Id"), retry_after_ms=_retry_after_ms({}, headers))
    if status in _NO_SUCH_ROUTE and body["code"] == "invalid_argument":
        body = {**body, "hint": OLDER}
    return error_from_problem(body, headers)


def error_from_problem(body: Mapping[str, Any], headers: Mapping[str, str]) -> SandboxError:
    """Build the exception of a problem of the contract, from an answer or the last message of a stream."""
    kind, details = BY_CODE.get(body["code"], SandboxError), body.get("details") or {}
    error = kind(
        str(body.get("detail") or body.get("title") or body["code"]),
        hint=body.get("hint"),
        details=details,
        retry_after_ms=_retry_after_ms(body, headers),
        # A failed create has a sandbox too, whose id its caller never received.
        sandbox_id=details.get("sandbox_id"),
        request_id=body.get("request_id") or headers.get("X-Request-Id"),
    )
    if kind is SandboxError:
        # A newer server's code: its own fields say more than any default here.
        error.code, error.fault, error.retry = body["code"], body.get("fault", "platform"), body.get("retry", "never")
        error.mask_sample = body.get("mask_sample", error.is_infra)
    return error


def _retry_after_ms(body: Mapping[str, Any], headers: Mapping[str, str]) -> int | None:
    if isinstance(body.get("retry_after_ms"), int):
        return int(body["retry_after_ms"])
    seconds = headers.get("Retry-After", "")
    return int(seconds) * 1000 if seconds.isascii() and seconds.isdigit() else None


def _decoded(raw: bytes, url: URL) -> Any:  # noqa: ANN401
    try:
        return json.loads(raw) if raw else None
    except ValueError as error:
        detail = f"the answer of {url.origin()}{url.path} is not JSON, so not from rollbox: {raw[:100]!r}"
        raise NotFound(detail, hint=_NOT_ROLLBOX) from error


def _timeout(limit_s: float | None, *, whole: bool = False) -> aiohttp.ClientTimeout:
    """Limit the connect and the silence after it, not the wait for a free connection, which the caller's load causes.

    With `whole` that wait counts too: the caller has set a deadline for the whole call.
    """
    total_s = limit_s if whole else None
    return aiohttp.ClientTimeout(total=total_s, sock_connect=_CONNECT_TIMEOUT_S, sock_read=limit_s)


_PATIENT = _timeout(None)
_TRANSFER = _timeout(_IDLE_LIMIT_S)


class _Outgoing:
    """A streamed request body: moves the deadline with every chunk, keeps what its source raised."""

    def __init__(self, source: Source, scope: asyncio.Timeout) -> None:
        self.failure: Exception | None = None
        self.scope: asyncio.Timeout | None = scope
        self._source = source

    async def chunks(self) -> AsyncIterator[bytes]:
        loop = asyncio.get_running_loop()
        try:
            async for chunk in self._source():
                if self.scope is not None and not self.scope.expired():
                    self.scope.reschedule(loop.time() + _IDLE_LIMIT_S)
                yield chunk
                # As long as the kernel takes every piece, sending never waits: an answer that comes before the end, a
                # refusal, would not be read until its server has closed the connection over it.
                await asyncio.sleep(0)
        except Exception as error:
            self.failure = error
            raise


def _session(*, keep: bool = True) -> aiohttp.ClientSession:
    kept: dict[str, Any] = {"keepalive_timeout": 30} if keep else {"force_close": True}
    connector = aiohttp.TCPConnector(limit=_most_connections(), socket_factory=_socket, **kept)
    return aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        headers={"User-Agent": f"rollbox/{__version__}", "Accept": "application/json"},
        # Compressing costs both ends more time than the network does for outputs of this size.
        skip_auto_headers=("Accept-Encoding",),
        ws_response_class=_Abortable,
        raise_for_status=_refuse_handshake,
    )


async def _refuse_handshake(response: aiohttp.ClientResponse) -> None:
    """Read the problem of a refused WebSocket: aiohttp's own error has no body."""
    if "Sec-WebSocket-Key" in response.request_info.headers and response.status != HTTPStatus.SWITCHING_PROTOCOLS:
        raise error_from_response(response.status, await response.read(), response.headers)


def _socket(address: aiohttp.AddrInfoType) -> socket.socket:
    """Make a socket that detects within 30 s that its peer has vanished: a long exec has no other sign of it.

    TCP keep-alive probes only while all sent data is acknowledged; TCP_USER_TIMEOUT limits unacknowledged data.
    """
    family, kind, proto, _, _ = address
    made = socket.socket(family=family, type=kind, proto=proto)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    options = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": _UNHEARD_MS}
    for option, value in options.items():
        if hasattr(socket, option):
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return made


class _Abortable(aiohttp.ClientWebSocketResponse):
    """A WebSocket that keeps its transport: aiohttp's gives it away with the end of its response."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - as aiohttp gives them
        super().__init__(*args, **kwargs)
        response = next(given for given in (*args, *kwargs.values()) if isinstance(given, aiohttp.ClientResponse))
        self.transport = None if response.connection is None else response.connection.transport


def abort(connected: aiohttp.ClientWebSocketResponse) -> None:
    """Abort a WebSocket whose peer is gone: a close, and a write, would wait until the peer has read what was sent.

    Idempotent. A write that waits returns; the next one fails.
    """
    if isinstance(connected, _Abortable) and connected.transport is not None:
        connected.transport.abort()


def _let_wait(connected: aiohttp.ClientWebSocketResponse) -> None:
    """Remove TCP_USER_TIMEOUT: a server may read nothing for long, and the gateway's pings show that it lives."""
    raw = connected.get_extra_info("socket")
    if raw is not None and hasattr(socket, "TCP_USER_TIMEOUT"):
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 0)


def _most_connections() -> int:
    """Three quarters of the open files limit, at most: a request had better wait for a connection than meet EMFILE."""
    if resource is None:
        return _MOST_CONNECTIONS
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST_CONNECTIONS if files == resource.RLIM_INFINITY else max(16, min(_MOST_CONNECTIONS, files * 3 // 4))
