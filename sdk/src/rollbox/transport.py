"""One HTTP session for one event loop: a request in, JSON out, every failure a SandboxError. Knows no route."""

from __future__ import annotations

import asyncio
import json
import resource
import socket
from collections.abc import Mapping
from http import HTTPStatus
from io import BytesIO
from typing import Any, NamedTuple

import aiohttp
from yarl import URL

from rollbox._problem import SandboxError
from rollbox._version import __version__
from rollbox.errors import BY_CODE, Internal, InvalidArgument, StreamInterrupted, UpstreamTimeout

# What a proxy's answer without a problem body means: it may or may not have passed the request on.
_CODE_OF_STATUS = {502: "stream_interrupted", 503: "draining", 504: "upstream_timeout", 413: "payload_too_large"}
_NO_GATEWAY = "Start one on this machine with `rollbox up`, or set ROLLBOX_URL to the address of a running gateway."
_CLOSED = "Use a sandbox within its `async with` and its event loop, or get it anew with Sandbox.connect(id)."
_CONNECT_TIMEOUT_S = 10.0
_MOST_CONNECTIONS = 4096
# aiohttp warns about larger bodies in one piece, since writing them would hold up the loop.
_ONE_PIECE_BYTES = 2**20


class Answer(NamedTuple):
    """A 2xx answer: status, decoded body, headers."""

    status: int
    body: Any
    headers: Mapping[str, str]


class Transport:
    """Connections to one gateway. Opened on the first request, on the loop of that request, and bound to it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._session: aiohttp.ClientSession | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False

    async def send(
        self,
        method: str,
        url: URL,
        credential: str,
        body: bytes | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        limit_s: float | None = None,
    ) -> Answer:
        """Send one request once.

        Args:
            method: GET, POST or DELETE.
            url: what to call.
            credential: API key or sandbox token.
            body: JSON, or None.
            headers: more headers.
            limit_s: give up after so many seconds of silence; None waits as long as the connection lives (`_socket`).

        Returns:
            the answer, when its status is below 300.

        Raises:
            SandboxError: the server's problem; UpstreamTimeout when there is no connection or `limit_s` passed;
                StreamInterrupted when the connection broke with the answer outstanding.
        Cancel safety: the connection is closed; the server may still carry out the request.
        """
        session = self._open()
        sent = {"Authorization": f"Bearer {credential}", **(headers or {})}
        if body is not None:
            sent["Content-Type"] = "application/json"
        data = BytesIO(body) if body is not None and len(body) > _ONE_PIECE_BYTES else body
        timeout = _PATIENT if limit_s is None else _timeout(limit_s)
        try:
            # A redirect would carry the credential to an address that nobody chose.
            call = session.request(method, url, data=data, headers=sent, timeout=timeout, allow_redirects=False)
            async with call as response:
                raw = await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._broken(method, error, limit_s) from error
        if response.status >= HTTPStatus.MULTIPLE_CHOICES:
            raise read_problem(response.status, raw, response.headers)
        return Answer(response.status, _decoded(raw, url), response.headers)

    async def aclose(self) -> None:
        """Close all connections. Idempotent; requests after it are refused."""
        self._closed = True
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _open(self) -> aiohttp.ClientSession:
        loop = asyncio.get_running_loop()
        if self._session is None:
            if self._closed:
                raise InvalidArgument(f"the client of {self.url} is closed", hint=_CLOSED)
            self._session = _session()
            self._loop = loop
        elif self._loop is not loop:
            raise InvalidArgument(
                f"the client of {self.url} is used from a second event loop",
                hint="Make one Client for each event loop.",
            )
        return self._session

    def _broken(self, method: str, error: Exception, limit_s: float | None) -> SandboxError:
        if isinstance(error, aiohttp.InvalidURL):
            return InvalidArgument(f"the gateway address {self.url!r} is not a URL")
        if isinstance(error, aiohttp.ClientConnectorError):
            reason = error.os_error.strerror or str(error.os_error)
            return UpstreamTimeout(f"no connection to {self.url}: {reason}", hint=_NO_GATEWAY)
        if isinstance(error, TimeoutError):
            waited = "while connecting" if limit_s is None else f"within {limit_s:g} s"
            return UpstreamTimeout(f"no answer from {self.url} to a {method} {waited}")
        return StreamInterrupted(f"the connection to {self.url} broke before the answer came: {error!r}")


def read_problem(status: int, raw: bytes, headers: Mapping[str, str]) -> SandboxError:
    """Build the exception of an answer with status 300 or above.

    A body that is no problem of the contract (a proxy's page) becomes the code that the status stands for, with the
    beginning of the page in the detail.
    """
    try:
        body = json.loads(raw)
    except ValueError:
        body = None
    if not isinstance(body, dict) or not isinstance(body.get("code"), str):
        page = raw[:200].decode("utf-8", "replace").strip()
        kind = BY_CODE.get(_CODE_OF_STATUS.get(status, "internal"), Internal)
        detail = f"HTTP {status} without a problem body: {page!r}"
        return kind(detail, request_id=headers.get("X-Request-Id"), retry_after_ms=_retry_after_ms({}, headers))
    kind = BY_CODE.get(body["code"], SandboxError)
    error = kind(
        str(body.get("detail") or body.get("title") or body["code"]),
        hint=body.get("hint"),
        details=body.get("details"),
        retry_after_ms=_retry_after_ms(body, headers),
        request_id=body.get("request_id") or headers.get("X-Request-Id"),
    )
    if kind is SandboxError:
        # A newer server's code: its own words say more than any guess of ours.
        error.code, error.fault, error.retry = body["code"], body.get("fault", "platform"), body.get("retry", "never")
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
        raise Internal(f"the answer of {url.origin()}{url.path} is not JSON: {raw[:100]!r}") from error


def _timeout(limit_s: float | None) -> aiohttp.ClientTimeout:
    """Bound connecting and the silence after it, not the wait for a free connection: that is the caller's own load."""
    return aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_TIMEOUT_S, sock_read=limit_s)


_PATIENT = _timeout(None)


def _session() -> aiohttp.ClientSession:
    connector = aiohttp.TCPConnector(limit=_most_connections(), keepalive_timeout=30, socket_factory=_socket)
    return aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        headers={"User-Agent": f"rollbox/{__version__}", "Accept": "application/json"},
        # Compressing costs both ends more time than the network does for outputs of this size.
        skip_auto_headers=("Accept-Encoding",),
    )


def _socket(address: aiohttp.AddrInfoType) -> socket.socket:
    """Make a socket that notices in 30 s that its peer vanished: a long exec has no other sign of it."""
    family, kind, proto, _, _ = address
    made = socket.socket(family=family, type=kind, proto=proto)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, option):
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return made


def _most_connections() -> int:
    """As many as the process may open files, less what the program itself needs: waiting beats EMFILE."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST_CONNECTIONS if files == resource.RLIM_INFINITY else max(16, min(_MOST_CONNECTIONS, files * 3 // 4))
