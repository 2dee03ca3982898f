"""A client of the Docker Engine API that raises every failure as a ``Problem``."""

import asyncio
import io
import json
import re
from collections.abc import AsyncIterable, AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from http import HTTPStatus
from typing import Any, Final, Self, TypedDict, Unpack

import aiohttp
from yarl import URL

from controlplane.errors import Code, Problem

# Timeout of one call; a start takes tenths of a second, a removal under load some seconds.
CALL_TIMEOUT_S: Final = 120.0
CONNECT_TIMEOUT_S: Final = 5.0
MAX_EVENT_BYTES: Final = 1 << 20
# Errors of Podman and Docker for an image whose USER is not in its /etc/passwd; the image is at fault, not the
# platform.
_NO_USER: Final = re.compile(r"unable to find (user|group) |no matching entries in (passwd|group) file")

# Podman fails a list of images, and what is asked about one, where it comes upon another that is just being removed.
REMOVED: Final = ("image not known", "locating item named")
IMAGE_READS: Final = 5
READ_AGAIN_S: Final = 0.2

# The host name is not used, since the connection is a Unix socket, but a request needs one.
_HOST: Final = URL("http://engine")

Query = Mapping[str, str | int | bool]


class _Options(TypedDict, total=False):
    json: object
    data: io.BytesIO | AsyncIterable[bytes]
    headers: Mapping[str, str]
    timeout: aiohttp.ClientTimeout


class Missing(Problem):
    """The engine does not have the named object (404). Callers translate it into an error of their own."""


class _RefusedError(Exception):
    """The engine answered with an error status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class EngineClient:
    """Calls an engine over its Unix socket.

    Uses an HTTP client directly: a library for the Docker Engine API would wrap half of the calls needed here in
    objects and has no public API for the others.
    """

    def __init__(self, http: aiohttp.ClientSession, url: str) -> None:
        self._http = http
        self._url = url
        self._base = _HOST

    @classmethod
    @asynccontextmanager
    async def connect(cls, url: str) -> AsyncIterator[Self]:
        """A client for ``unix:///path``; opens connections as it needs them.

        Raises:
            Problem: internal, when the engine does not answer.
        """
        limits = aiohttp.ClientTimeout(total=CALL_TIMEOUT_S, connect=CONNECT_TIMEOUT_S)
        connector = aiohttp.UnixConnector(url.removeprefix("unix://"), limit=0)
        async with aiohttp.ClientSession(connector=connector, timeout=limits) as http:
            client = cls(http, url)
            version = await client.call("GET", "version")
            # Later calls request the newest API version that this engine supports, so that the answers' format is
            # fixed.
            client._base = _HOST / f"v{version['ApiVersion']}"
            yield client

    async def call(self, method: str, path: str, query: Query | None = None, body: object = None) -> Any:  # noqa: ANN401 - JSON
        """Makes a call; returns the decoded JSON answer, or None for an empty one.

        What is asked about one image is asked again where another is just being removed; of all, see `listing`.

        Args:
            method: of HTTP.
            path: below the engine's API version, without a slash in front.
            query: parameters; None for no query.
            body: sent as JSON; None for no body.

        Raises:
            Problem: ``Missing`` for 404; unsupported, capacity_unavailable, upstream_timeout, internal.
        """
        one_image = method == "GET" and path.startswith("images/") and path != "images/json"
        for _ in range(IMAGE_READS - 1 if one_image else 0):
            try:
                return await self._called(method, path, query, body)
            except Problem as problem:
                if isinstance(problem, Missing) or not any(words in problem.detail for words in REMOVED):
                    raise
                await asyncio.sleep(READ_AGAIN_S)
        return await self._called(method, path, query, body)

    async def _called(self, method: str, path: str, query: Query | None, body: object) -> Any:  # noqa: ANN401 - JSON
        with self._typed(path):
            async with self._request(method, path, query, json=body) as response:
                answer = await response.read()
                return json.loads(answer) if answer.strip() else None

    async def read(self, path: str, query: Query) -> bytes:
        """Makes a GET request; returns the bytes of a short answer."""
        with self._typed(path):
            async with self._request("GET", path, query) as response:
                return await response.read()

    async def upload(self, path: str, query: Query, data: bytes) -> list[dict[str, Any]]:
        """Posts a tar archive; returns the decoded JSON lines of the answer."""
        headers = {"Content-Type": "application/x-tar"}
        with self._typed(path):
            async with self._request("POST", path, query, data=io.BytesIO(data), headers=headers) as response:
                return [json.loads(line) for line in (await response.read()).splitlines() if line]

    async def load(self, archive: AsyncIterable[bytes]) -> None:
        """Loads an archive of images; has no timeout.

        Raises:
            Problem: capacity_unavailable, internal, unsupported.
        """
        unhurried = aiohttp.ClientTimeout(total=None, connect=CONNECT_TIMEOUT_S)
        headers, path = {"Content-Type": "application/x-tar"}, "images/load"
        with self._typed(path):
            async with self._request("POST", path, None, data=archive, headers=headers, timeout=unhurried) as response:
                for line in (await response.read()).splitlines():
                    # The status was sent before the archive was read to its end.
                    if line.strip() and (failure := json.loads(line).get("error")):
                        raise _RefusedError(HTTPStatus.INTERNAL_SERVER_ERROR, str(failure))

    @asynccontextmanager
    async def lines(
        self, method: str, path: str, query: Query, archive: AsyncIterable[bytes] | None = None
    ) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
        """A stream of JSON lines, without a timeout; ends when the engine closes it.

        Args:
            method: of HTTP.
            path: below the engine's API version.
            query: parameters.
            archive: is sent first; None: nothing is.
        """
        unhurried = aiohttp.ClientTimeout(total=None, connect=CONNECT_TIMEOUT_S)
        sent: _Options = {"timeout": unhurried}
        if archive is not None:
            sent |= {"data": archive, "headers": {"Content-Type": "application/x-tar"}}
        with self._typed(path):
            async with self._request(method, path, query, **sent) as response:
                try:
                    yield self._decoded(response)
                finally:
                    response.close()

    @asynccontextmanager
    async def _request(
        self, method: str, path: str, query: Query | None, **options: Unpack[_Options]
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        named = {
            name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in (query or {}).items()
        }
        async with self._http.request(method, self._base.joinpath(path), params=named, **options) as response:
            if response.status >= HTTPStatus.BAD_REQUEST:
                raise _RefusedError(response.status, _message(await response.read()))
            yield response

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
        except _RefusedError as error:
            raise self._problem(error, path) from error
        except TimeoutError as error:
            raise Problem("upstream_timeout", f"the engine at {self._url} did not answer {path} in time") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise Problem("internal", f"the engine at {self._url} broke off {path}: {error}") from error

    def _problem(self, error: _RefusedError, path: str) -> Problem:
        # Podman answers 500 for a container that is removed while it handles the request.
        if error.status == 404 or "no such container" in error.message:
            return Missing("internal", f"the engine has no {path}: {error.message}")
        code: Code = "unsupported" if error.status == 400 else "internal"
        if "no space left" in error.message:
            code = "capacity_unavailable"
        elif _NO_USER.search(error.message):
            code = "unsupported"
        detail = f"the engine refused {path}: {error.message}"
        return Problem(code, detail, engine=self._url, engine_status=error.status)


def _message(body: bytes) -> str:
    """The message of an error answer: from its JSON, or the body as it is."""
    try:
        return str(json.loads(body)["message"])
    except (ValueError, TypeError, KeyError):
        return body.decode("utf-8", "replace").strip()
