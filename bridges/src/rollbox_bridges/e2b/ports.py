"""Requests to servers in a sandbox: HTTP and WebSocket, passed through the gateway's own address of the port."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote

import aiohttp
from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

from rollbox_bridges.e2b.sessions import Session
from rollbox_bridges.e2b.words import Refusal

# Of the connection, not of the message; and what is the bridge's own.
_HOP: Final = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "host",
        "content-length",
    }
)
_OURS: Final = ("e2b-", "x-access-token", "x-rollbox-")
_SOCKET: Final = "sec-websocket-"
_MOST_MESSAGE_BYTES: Final = 2**24


def checked(path: str) -> str:
    """Return the path of a request, as it was sent.

    Raises:
        Refusal: it could lead out of the port's own address, where the credential of the sandbox goes with it.
    """
    segments = unquote(path.partition("?")[0]).replace("\\", "/").split("/")
    if not path.startswith("/") or {".", ".."} & set(segments):
        raise Refusal(400, "the path of the request has segments of dots, or is none")
    return path


class Ports:
    """Passes requests on; has one pool of connections."""

    def __init__(self) -> None:
        self._http: aiohttp.ClientSession | None = None

    async def serve(self, request: web.Request, session: Session, port: int) -> web.StreamResponse:
        """Pass one request on, and its answer back.

        Raises:
            Refusal: its path could lead elsewhere.
            SandboxError: of the sandbox.
            aiohttp.ClientError: the gateway did not answer.
        """
        path = checked(request.raw_path)
        exposed = await session.sandbox.ports.expose(port)
        url = URL(exposed.url.rstrip("/") + path, encoded=True)
        headers = _passed(request.headers)
        headers.update(exposed.headers)
        if request.headers.get("Upgrade", "").lower() == "websocket":
            return await self._socket(request, url, headers)
        body = request.content if request.body_exists else None
        async with self._session().request(
            request.method, url, headers=headers, data=body, allow_redirects=False
        ) as answer:
            response = web.StreamResponse(status=answer.status, reason=answer.reason, headers=_passed(answer.headers))
            await response.prepare(request)
            async for data in answer.content.iter_any():
                await response.write(data)
            await response.write_eof()
            return response

    async def _socket(self, request: web.Request, url: URL, headers: CIMultiDict[str]) -> web.WebSocketResponse:
        protocols = [one.strip() for one in request.headers.get("Sec-WebSocket-Protocol", "").split(",") if one.strip()]
        plain = CIMultiDict((name, value) for name, value in headers.items() if not name.lower().startswith(_SOCKET))
        async with self._session().ws_connect(
            url, headers=plain, protocols=protocols, max_msg_size=_MOST_MESSAGE_BYTES
        ) as there:
            chosen = [there.protocol] if there.protocol else []
            here = web.WebSocketResponse(protocols=chosen, max_msg_size=_MOST_MESSAGE_BYTES)
            await here.prepare(request)
            ways = [asyncio.create_task(_moved(here, there)), asyncio.create_task(_moved(there, here))]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for one in ways:
                    one.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
            await here.close(code=there.close_code or aiohttp.WSCloseCode.OK)
            return here

    def _session(self) -> aiohttp.ClientSession:
        if self._http is None:
            timeout = aiohttp.ClientTimeout(total=None, sock_connect=30)
            self._http = aiohttp.ClientSession(
                auto_decompress=False, timeout=timeout, connector=aiohttp.TCPConnector(limit=0), trust_env=False
            )
        return self._http

    async def aclose(self) -> None:
        """Close its connections."""
        if self._http is not None:
            await self._http.close()


async def _moved(
    source: web.WebSocketResponse | aiohttp.ClientWebSocketResponse,
    target: web.WebSocketResponse | aiohttp.ClientWebSocketResponse,
) -> None:
    async for message in source:
        if message.type is aiohttp.WSMsgType.TEXT:
            await target.send_str(message.data)
        elif message.type is aiohttp.WSMsgType.BINARY:
            await target.send_bytes(message.data)


def _passed(headers: Mapping[str, str]) -> CIMultiDict[str]:
    return CIMultiDict(
        (name, value)
        for name, value in headers.items()
        if name.lower() not in _HOP and not name.lower().startswith(_OURS)
    )
