"""Single requests to registries: bounded in time and size, with redirects that carry no credential elsewhere."""

import asyncio
import ipaddress
import socket
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, Self
from weakref import WeakValueDictionary

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from multidict import CIMultiDictProxy
from yarl import URL

from controlplane.addresses import IpAddress, connected, never_called
from controlplane.registry.outcome import RegistryProblem, TooLargeError

# Of one request with its redirects; guesses: a registry answers in tenths of a second.
TOTAL_S: Final = 10.0
CONNECT_S: Final = 3.0
MAX_REDIRECTS: Final = 5
# Requests at once; further ones wait. One registry that does not answer leaves places to the others.
MOST_AT_ONCE: Final = 64
MOST_OF_ONE: Final = 32
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer; the body of a refusal is not read."""

    status: int
    headers: CIMultiDictProxy[str]
    body: bytes


class Transport:
    """Sends requests, by https; by http only to registries that ``plain`` names.

    A user's image names the host that is asked. So addresses that only this machine has a meaning for (loopback, unless
    ``plain`` names it; link-local, where clouds have their metadata services) are not asked at all.
    """

    def __init__(self, http: aiohttp.ClientSession, plain: Collection[str]) -> None:
        self._http = http
        self._plain = frozenset(plain)
        self._places = asyncio.Semaphore(MOST_AT_ONCE)
        self._places_of: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    @classmethod
    @asynccontextmanager
    async def open(cls, plain: Collection[str]) -> AsyncIterator[Self]:
        """A transport while the block runs; it connects when needed."""
        # Places are waited for before a request: waiting for one takes nothing of these times.
        limits = aiohttp.ClientTimeout(total=TOTAL_S, sock_connect=CONNECT_S)
        connector = aiohttp.TCPConnector(limit=0, resolver=_Guarded(plain))
        headers = {"Accept-Encoding": "identity", "User-Agent": "rollbox"}
        # Without decompression, which would turn a bounded body into an unbounded one.
        async with aiohttp.ClientSession(
            connector=connector,
            timeout=limits,
            headers=headers,
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
        ) as http:
            yield cls(http, plain)

    def url(self, host: str, path: str) -> URL:
        """The address of a path at a registry."""
        return URL(f"{'http' if host in self._plain else 'https'}://{host}{path}", encoded=True)

    def secure(self, url: URL) -> bool:
        """Whether a credential may be sent there."""
        return url.scheme == "https" or (url.scheme == "http" and url.authority in self._plain)

    async def send(self, registry: str, method: str, url: URL, headers: Mapping[str, str], limit: int) -> Answer:
        """Sends a request, follows redirects, and reads the answer.

        Args:
            registry: which one is asked, for the words of a failure.
            method: HEAD or GET.
            url: the address.
            headers: ``Authorization`` among them is for the address's own host only.
            limit: the most bytes of a body.

        Raises:
            RegistryProblem: away, broken.
        """
        places = self._places_of.setdefault(registry, asyncio.Semaphore(MOST_OF_ONE))
        async with places, self._places:
            return await self._sent(registry, method, url, headers, limit)

    async def _sent(self, registry: str, method: str, url: URL, headers: Mapping[str, str], limit: int) -> Answer:
        kept = dict(headers)
        try:
            for _ in range(MAX_REDIRECTS + 1):
                self._check(registry, url)
                async with self._http.request(method, url, headers=kept, allow_redirects=False) as response:
                    location = response.headers.get("Location")
                    if response.status not in _REDIRECTS or location is None:
                        return Answer(response.status, response.headers, await _body(registry, response, limit))
                target = url.join(URL(location))
                if target.origin() != url.origin():
                    kept.pop("Authorization", None)
                url = target
        except TimeoutError as error:
            raise RegistryProblem("away", registry, f"no answer within {TOTAL_S:.0f} s") from error
        except (aiohttp.ClientPayloadError, ValueError) as error:
            raise RegistryProblem("broken", registry, f"its answer broke off or is malformed: {error}") from error
        except (aiohttp.ClientError, OSError) as error:
            raise RegistryProblem("away", registry, f"it cannot be reached: {error}") from error
        raise RegistryProblem("broken", registry, f"it redirects more than {MAX_REDIRECTS} times")

    def _check(self, registry: str, url: URL) -> None:
        if not self.secure(url):
            detail = f"{url.authority[:100]} would be asked without TLS, and is not among the registries that may be"
            raise RegistryProblem("away", registry, detail)
        try:
            address = ipaddress.ip_address(url.host or "")
        except ValueError:
            return
        if not _allowed(address, url.host or "", {_host(one) for one in self._plain}):
            raise RegistryProblem("away", registry, f"{address} is no address that registries are asked at")


class _Guarded(AbstractResolver):
    """Resolves names as the system does, without the addresses that are not asked."""

    def __init__(self, plain: Collection[str]) -> None:
        self._resolver = aiohttp.ThreadedResolver()
        self._plain = {_host(one) for one in plain}

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """See ``AbstractResolver.resolve``."""
        found = await self._resolver.resolve(host, port, family)
        allowed = [one for one in found if _allowed(ipaddress.ip_address(one["host"]), host, self._plain)]
        if not allowed:
            raise OSError(None, f"{host} has no address that registries are asked at")
        return allowed

    async def close(self) -> None:
        """See ``AbstractResolver.close``."""
        await self._resolver.close()


def _allowed(address: IpAddress, host: str, plain: Collection[str]) -> bool:
    return not never_called(address) and (not connected(address).is_loopback or host in plain)


def _host(registry: str) -> str:
    return URL(f"http://{registry}").host or ""


async def _body(registry: str, response: aiohttp.ClientResponse, limit: int) -> bytes:
    if response.status != HTTPStatus.OK:
        return b""  # the status says all that is asked
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > limit:
            raise TooLargeError("broken", registry, f"its answer has more than {limit} bytes")
    return bytes(body)
