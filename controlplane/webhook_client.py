"""Posts webhooks over HTTP: bounded in time and size, without redirects, and not at addresses that are not allowed."""

import ipaddress
import os
import socket
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final, Self

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from controlplane.webhooks import Answer, Endpoint, judged

# Of one request with its answer, as Standard Webhooks recommends.
TOTAL_S: Final = 15.0
CONNECT_S: Final = 5.0
# Of an answer, which is read and not used: a connection whose answer is longer is closed.
MOST_ANSWER_BYTES: Final = 65_536
_NOT_THERE: Final = "it has no address that it may be at (see allow_private)"


class WebhookClient:
    """A ``Poster`` with a connection to each endpoint, which stays open between requests."""

    def __init__(self, sessions: Mapping[str, aiohttp.ClientSession]) -> None:
        self._sessions = sessions

    @classmethod
    @asynccontextmanager
    async def open(cls, endpoints: tuple[Endpoint, ...]) -> AsyncIterator[Self]:
        """A client while the block runs; it connects when needed."""
        sessions = {one.name: _session(one) for one in endpoints}
        try:
            yield cls(sessions)
        finally:
            for session in sessions.values():
                await session.close()

    async def post(self, endpoint: Endpoint, headers: Mapping[str, str], body: bytes) -> Answer:
        """See ``Poster.post``."""
        if not _named(endpoint):
            return Answer("later", _NOT_THERE)
        try:
            request = self._sessions[endpoint.name].post(
                endpoint.url, headers=headers, data=body, allow_redirects=False
            )
            async with request as response:
                answer = judged(response.status, response.headers.get("Retry-After"), round(time.time() * 1000))
                await _read(response)
                return answer
        except TimeoutError:
            return Answer("later", f"no answer within {TOTAL_S:.0f} s")
        except (aiohttp.ClientError, OSError, ValueError) as error:
            # Texts of errors have the URL, which may have a password.
            return Answer("later", _why(error))


def _session(endpoint: Endpoint) -> aiohttp.ClientSession:
    limits = aiohttp.ClientTimeout(total=TOTAL_S, sock_connect=CONNECT_S)
    connector = aiohttp.TCPConnector(limit=1, resolver=_Guarded(endpoint))
    return aiohttp.ClientSession(
        connector=connector,
        timeout=limits,
        headers={"User-Agent": "rollbox", "Accept-Encoding": "identity"},
        auto_decompress=False,
        cookie_jar=aiohttp.DummyCookieJar(),
    )


async def _read(response: aiohttp.ClientResponse) -> None:
    """Reads a short answer, so that the connection stays open; the status has said all that is asked."""
    read = 0
    async for chunk in response.content.iter_any():
        read += len(chunk)
        if read > MOST_ANSWER_BYTES:
            response.close()
            return


def _why(error: Exception) -> str:
    if isinstance(error, _NotAllowedError):
        return str(error)
    inner = getattr(error, "os_error", None) or error.__cause__ or error
    if isinstance(inner, _NotAllowedError):
        return str(inner)
    number = getattr(inner, "errno", None)
    return f"{type(error).__name__}{f': {os.strerror(number)}' if isinstance(number, int) and number > 0 else ''}"


def _named(endpoint: Endpoint) -> bool:
    """Whether its URL has a name, which is looked up, or an address that it may be at."""
    try:
        address = ipaddress.ip_address(URL(endpoint.url).host or "")
    except ValueError:
        return True
    return endpoint.may_be_at(address)


class _NotAllowedError(OSError):
    """An endpoint's name leads nowhere that it may be at."""


class _Guarded(AbstractResolver):
    """Resolves a name as the system does, without the addresses that the endpoint may not be at."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._resolver = aiohttp.ThreadedResolver()
        self._endpoint = endpoint

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """See ``AbstractResolver.resolve``."""
        found = await self._resolver.resolve(host, port, family)
        allowed = [
            one for one in found if self._endpoint.may_be_at(ipaddress.ip_address(one["host"].partition("%")[0]))
        ]
        if not allowed:
            raise _NotAllowedError(_NOT_THERE)
        return allowed

    async def close(self) -> None:
        """See ``AbstractResolver.close``."""
        await self._resolver.close()
