"""The engine's HTTP API with typed failures: everything that goes wrong leaves here as a ``Problem``."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final, Self, TypeVar

import aiodocker
import aiohttp

from controlplane.errors import Code, Problem

# One engine call; a start takes tenths of a second, a removal under load some seconds.
CALL_TIMEOUT_S: Final = 120.0
CONNECT_TIMEOUT_S: Final = 5.0
MAX_EVENT_BYTES: Final = 1 << 20
# Podman and Docker, of an image whose USER is not in its own /etc/passwd: no fault of the platform.
_NO_USER: Final = re.compile(r"unable to find (user|group) |no matching entries in (passwd|group) file")

T = TypeVar("T")
Query = Mapping[str, str | int | bool]


class Missing(Problem):
    """The engine does not have what was named (404). Callers turn it into what it means there."""


class EngineClient:
    """Calls an engine over its unix socket."""

    def __init__(self, docker: aiodocker.Docker, url: str) -> None:
        self._docker = docker
        self._url = url

    @classmethod
    @asynccontextmanager
    async def connect(cls, url: str) -> AsyncIterator[Self]:
        """A client for ``unix:///path``; opens connections as it needs them.

        Raises:
            Problem: internal, when the engine does not answer.
        """
        limits = aiohttp.ClientTimeout(total=CALL_TIMEOUT_S, connect=CONNECT_TIMEOUT_S)
        async with aiodocker.Docker(url=url, timeout=limits) as docker:
            client = cls(docker, url)
            with client._typed("version"):
                await docker.version()  # settles the API version that later calls name
            yield client

    async def call(self, method: str, path: str, query: Query | None = None, body: object = None) -> Any:  # noqa: ANN401 - JSON
        """One call; the decoded JSON answer, or None for an empty one.

        Raises:
            Problem: ``Missing`` for 404; unsupported, capacity_unavailable, upstream_timeout, internal.
        """
        # aiodocker's typed methods cover half of what is needed and wrap it in objects with untyped methods; this and
        # the call below are what they are all made of.
        with self._typed(path):
            answer = await self._docker._query_json(path, method, params=query, data=body)  # noqa: SLF001
        return answer or None

    async def read(self, path: str, query: Query) -> bytes:
        """The bytes of a short answer."""
        with self._typed(path):
            async with self._docker._query(path, params=query) as response:  # noqa: SLF001
                return await response.read()

    async def upload(self, path: str, query: Query, data: bytes) -> list[dict[str, Any]]:
        """Posts bytes; the lines of the answer."""
        headers = {"Content-Type": "application/x-tar"}
        with self._typed(path):
            sending = self._docker._query(path, "POST", params=query, data=data, headers=headers)  # noqa: SLF001
            async with sending as response:
                return [json.loads(line) for line in (await response.read()).splitlines() if line]

    @asynccontextmanager
    async def lines(self, method: str, path: str, query: Query) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
        """A stream of JSON lines that lasts as long as the engine keeps it open."""
        unhurried = aiohttp.ClientTimeout(total=None, connect=CONNECT_TIMEOUT_S)
        with self._typed(path):
            asking = self._docker._query(path, method, params=query, timeout=unhurried)  # noqa: SLF001
            async with asking as response:
                try:
                    yield self._decoded(response)
                finally:
                    response.close()

    async def _decoded(self, response: aiohttp.ClientResponse) -> AsyncIterator[dict[str, Any]]:
        rest = b""
        async for chunk in response.content.iter_any():
            *lines, rest = (rest + chunk).split(b"\n")
            if len(rest) > MAX_EVENT_BYTES:
                raise Problem("internal", f"the engine at {self._url} sent a line of more than {MAX_EVENT_BYTES} bytes")
            for line in lines:
                if line.strip():
                    yield json.loads(line)
        if rest.strip():
            yield json.loads(rest)

    @contextmanager
    def _typed(self, path: str) -> Iterator[None]:
        try:
            yield
        except aiodocker.DockerError as error:
            raise self._problem(error, path) from error
        except TimeoutError as error:
            raise Problem("upstream_timeout", f"the engine at {self._url} did not answer {path} in time") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise Problem("internal", f"the engine at {self._url} broke off {path}: {error}") from error

    def _problem(self, error: aiodocker.DockerError, path: str) -> Problem:
        # Podman answers 500 for a container that is removed while it looks at it.
        if error.status == 404 or "no such container" in error.message:
            return Missing("internal", f"the engine has no {path}: {error.message}")
        code: Code = "unsupported" if error.status == 400 else "internal"
        if "no space left" in error.message:
            code = "capacity_unavailable"
        elif _NO_USER.search(error.message):
            code = "unsupported"
        detail = f"the engine refused {path}: {error.message}"
        return Problem(code, detail, engine=self._url, engine_status=error.status)


async def finish(work: "asyncio.Task[T]") -> T:
    """Waits for ``work`` to its end, even when the caller is cancelled meanwhile (it is cancelled afterwards).

    An engine goes on with a call whose client has gone: what it makes then, nobody would know to remove. A second
    cancellation gives the work up.
    """
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        try:
            await asyncio.wait([work])
        finally:
            if not work.cancel() and not work.cancelled():
                work.exception()  # seen; the caller has gone
        raise
