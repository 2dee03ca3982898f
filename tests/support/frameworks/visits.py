"""Visitors of a port, as browsers come: by path or by host name, with TLS before the gateway or without."""

from __future__ import annotations

import asyncio
import hashlib
import re
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Final

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from rollbox.ports import Exposed
from tests.support.authority import Authority

WAYS: Final = [(by, scheme) for by in ("path", "host") for scheme in ("http", "https")]
APPS: Final = Path(__file__).with_name("apps")
# Where what terminates TLS listens: the gateway may be on another address.
FRONT: Final = "127.0.0.1"
_PIECE_BYTES = 1 << 16


@dataclass(frozen=True)
class Visitor:
    """One with cookies of its own.

    Attributes:
        page: the port's address, which ends with a slash.
    """

    page: URL
    session: aiohttp.ClientSession

    async def submit(self, said: str) -> tuple[URL, str]:
        """The page and the text to which the form on the first page leads, filled in."""
        async with self.session.get(self.page) as answer:
            form = await answer.text()
            assert answer.status == 200, form
        (action,) = re.findall(r'action="([^"]*)"', form)
        fields = dict(re.findall(r'name="([^"]*)" value="([^"]*)"', form)) | {"said": said}
        from_here = {"Origin": str(self.page.origin()), "Referer": str(self.page)}
        async with self.session.post(self.page.join(URL(action)), data=fields, headers=from_here) as answer:
            assert answer.status == 200, await answer.text()
            assert len(answer.history) == 1
            return answer.url, await answer.text()

    async def upload(self, name: str, content: bytes) -> str:
        """What the server says of an uploaded file."""
        data = aiohttp.FormData()
        data.add_field("file", BytesIO(content), filename=name)
        async with self.session.post(self.page / "upload", data=data) as answer:
            return await answer.text()

    async def events(self) -> list[str]:
        """Both events of the server, which sends the second one when it has got a request without a body."""
        async with self.session.get(self.page / "events") as answer:
            first = await _event(answer)
            async with self.session.post(self.page / "empty") as empty:
                assert (empty.status, await empty.text()) == (200, "0")
            return [first, await _event(answer)]

    async def talk(self, said: str) -> tuple[str, str]:
        """The origin that a WebSocket's server saw, and its echo."""
        async with self.session.ws_connect(self.page / "ws", origin=str(self.page.origin())) as there:
            seen = await there.receive_str(timeout=60)
            await there.send_str(said)
            return seen, await there.receive_str(timeout=60)


async def _event(answer: aiohttp.ClientResponse) -> str:
    async with asyncio.timeout(60):
        return (await answer.content.readuntil(b"\n\n")).decode().strip()


@asynccontextmanager
async def visitor(gateway: URL, port: Exposed, by: str, scheme: str, folder: Path) -> AsyncIterator[Visitor]:
    """One of these ways; `folder` takes the certificate of what terminates TLS."""
    async with AsyncExitStack() as opened:
        page, resolver = URL(port.url if by == "path" else str(port.host_url)), _Resolver(str(gateway.host))
        if scheme == "https":
            front = await opened.enter_async_context(tls(gateway, folder, b"X-Forwarded-Proto: https\r\n"))
            page, resolver = secure(page, by, front), _Resolver(FRONT)
        # A connection for each request: what terminates TLS says so at the first one.
        connector = aiohttp.TCPConnector(resolver=resolver, ssl=False, force_close=True)
        jar = aiohttp.CookieJar(unsafe=True)
        session = aiohttp.ClientSession(connector=connector, cookie_jar=jar, headers=port.headers)
        yield Visitor(page, await opened.enter_async_context(session))


def secure(page: URL, by: str, front: int) -> URL:
    """The page's address at what terminates TLS, which has the port `front`."""
    page = page.with_scheme("https").with_port(front)
    return page.with_host(FRONT) if by == "path" else page


class _Resolver(AbstractResolver):
    """Every name has one address."""

    def __init__(self, address: str) -> None:
        self._address = address

    async def resolve(self, host: str, port: int = 0, family: int = socket.AF_INET) -> list[ResolveResult]:
        found = ResolveResult(hostname=host, host=self._address, port=port, family=socket.AF_INET, proto=0, flags=0)
        return [found]

    async def close(self) -> None:
        """Nothing is open."""


@asynccontextmanager
async def tls(gateway: URL, folder: Path, header: bytes = b"") -> AsyncIterator[int]:
    """The port of what terminates TLS for the gateway, with a header more in each connection's first request."""
    made = Authority().write(folder, FRONT)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(made / "tls.crt", made / "tls.key")

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = await reader.readline()
        there, back = await asyncio.open_connection(gateway.host, gateway.port)
        back.write(first + (header if first else b""))
        await asyncio.gather(_copy(reader, back), _copy(there, writer))

    async with await asyncio.start_server(serve, FRONT, 0, ssl=context) as server:
        yield int(server.sockets[0].getsockname()[1])


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while piece := await reader.read(_PIECE_BYTES):
            writer.write(piece)
            await writer.drain()
    except ConnectionError:
        pass  # Either side may leave in the middle.
    finally:
        writer.close()


def digest(content: bytes) -> str:
    """As the servers tell it of an upload."""
    return hashlib.sha256(content).hexdigest()
