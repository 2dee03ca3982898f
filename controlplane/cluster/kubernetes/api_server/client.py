"""A client of the API server that speaks plain JSON, limits concurrency, and retries; failures are ``Problem``.

The Kubernetes client library only finds the server and the credentials. Its models are not used: parsing thousands of
pods into objects costs more than everything else.
"""

import asyncio
import math
import random
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, Self

import aiohttp
import structlog
from aiohttp.helpers import get_env_proxy_for_url
from pydantic_core import from_json, to_json
from yarl import URL

from controlplane.clock import Clock, SystemClock
from controlplane.cluster.finish import finish
from controlplane.cluster.kubernetes.api_server.access import Access, access
from controlplane.cluster.kubernetes.api_server.events import decoded
from controlplane.cluster.kubernetes.api_server.outage import Outage
from controlplane.cluster.kubernetes.api_server.refusals import MAX_RETRY_AFTER_S, Refusal, Refused
from controlplane.cluster.kubernetes.api_server.sockets import Sockets
from controlplane.cluster.kubernetes.api_server.unreachable import MAX_SKEW_S, is_certificate, skew_s, unreachable
from controlplane.errors import Problem

CONNECT_TIMEOUT_S: Final = 5.0
# Timeout of one attempt. The API server's own limit is 60 s, but a call that takes this long is better retried.
ATTEMPT_TIMEOUT_S: Final = 15.0
# Default deadline of a call with all its retries.
WITHIN_S: Final = 60.0
# How long a create is retried after a 401. When this process's own pod is deleted, the API server rejects its token
# before the process has ended, which takes a busy kubelet more than 5 s. Creates in progress must not fail because of
# that: another replica takes them over.
DISOWNED_S: Final = 30.0
# No attempt is made with less time left: it would only fail with a timeout, whatever the server's state.
LEAST_S: Final = 0.1
FIRST_PAUSE_S: Final = 0.1
LAST_PAUSE_S: Final = 5.0
# Concurrent calls. The API server limits the concurrency of each user (API Priority and Fairness); a burst of calls has
# to wait here and not in the server's queue.
CALLS_AT_ONCE: Final = 32
# Objects on one page of a list.
PAGE: Final = 500
# Attempts at a list whose continue token expires.
LISTS: Final = 3
# A watch gets a bookmark about once a minute; one that has been silent for longer than this has lost its connection.
SILENCE_S: Final = 150.0

MERGE: Final = "application/merge-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"
Json = dict[str, Any]
Changes = list[Json]


@dataclass(frozen=True, slots=True)
class Listing:
    """All objects of a list, and the resourceVersion at which they were read."""

    items: list[Json]
    version: str


@dataclass(frozen=True, slots=True)
class _Request:
    """One call, which may be attempted several times."""

    method: str
    path: str
    query: Mapping[str, str]
    body: "Json | Changes | None"
    kind: str
    answered: bool

    @property
    def what(self) -> str:
        """Method and path, for messages."""
        return f"{self.method} {self.path}"


@contextmanager
def _aborted(response: aiohttp.ClientResponse) -> Iterator[None]:
    """Aborts the connection of an answer that is not read to its end: a watch, or a call that is cancelled.

    Abort, not close: a graceful TLS close waits for the server, for which an ending event loop does not wait.
    """
    try:
        yield
    finally:
        # An answer that was read to its end has given its connection back.
        if response.connection is not None and response.connection.transport is not None:
            response.connection.transport.abort()


class NotAskedError(Problem):
    """The deadline of a call passed before it was sent, so this says nothing about the API server."""

    def __init__(self, what: str) -> None:
        super().__init__("upstream_timeout", f"there was no time left to ask for {what}; the API server was not asked")


class KubernetesClient:
    """A client of one API server, with one connection pool."""

    def __init__(self, http: aiohttp.ClientSession, way: Access, clock: Clock) -> None:
        self._http = http
        self.way = way
        self._clock = clock
        self._free = asyncio.Semaphore(CALLS_AT_ONCE)
        self._skewed = False
        self._date: str | None = None
        self._outage = Outage(way.url)
        self._log = structlog.get_logger("kubernetes")

    @classmethod
    @asynccontextmanager
    async def connect(cls, kubeconfig: Path | None, clock: Clock | None = None) -> AsyncIterator[Self]:
        """A client; connects when needed.

        Raises:
            Problem: internal, if there is no usable configuration.
        """
        way = await access(kubeconfig)
        sockets, tls = Sockets(), way.tls if way.tls is not None else True
        connector = aiohttp.TCPConnector(limit=0, ssl=tls, socket_factory=sockets.make)
        limits = aiohttp.ClientTimeout(total=ATTEMPT_TIMEOUT_S, connect=CONNECT_TIMEOUT_S)
        try:
            # An API server sets no cookies, and a jar is looked through for each call.
            options = {"timeout": limits, "cookie_jar": aiohttp.DummyCookieJar(), **_proxy(way.url)}
            async with aiohttp.ClientSession(connector=connector, **options) as http:
                yield cls(http, way, clock or SystemClock())
        finally:
            await sockets.gone()

    async def get(self, path: str, *, within_s: float = WITHIN_S) -> Json:
        """Reads one object."""
        return await self._call("GET", path, within_s=within_s)

    async def create(self, path: str, body: Json, *, within_s: float = WITHIN_S, answered: bool = True) -> Json:
        """Creates an object. Retried if the answer is lost, so ``AlreadyExists`` may mean an earlier attempt.

        Args:
            path: of the collection.
            body: the object.
            within_s: seconds for all attempts together.
            answered: whether the object is returned as it is then; False: nothing is.
        """
        return await self._call("POST", path, body=body, within_s=within_s, answered=answered)

    async def patch(self, path: str, body: Json | Changes, kind: str = MERGE, *, within_s: float = WITHIN_S) -> Json:
        """Patches an object; the patch must be idempotent, since it may be retried.

        One that names the version that it is for is not sent again after a conflict.

        Args:
            path: of the object, from the root of the API server.
            body: the patch: an object for a merge, a list for a JSON patch.
            kind: the media type of the patch.
            within_s: seconds for all attempts together.

        Returns:
            the object after the patch.

        Raises:
            Problem: what the API server refuses it for, or upstream_timeout: it does not answer in time.
        """
        return await self._call("PATCH", path, body=body, kind=kind, within_s=within_s)

    async def delete(self, path: str, body: Json, *, within_s: float = WITHIN_S) -> None:
        """Deletes an object, with the options in ``body``."""
        await self._call("DELETE", path, body=body, within_s=within_s, answered=False)

    async def list(self, path: str, query: Mapping[str, str], keep: Callable[[Json], Json] | None = None) -> Listing:
        """Lists all objects, page by page; starts again at the first page when the continue token has expired.

        Args:
            path: of the collection.
            query: selectors.
            keep: what is kept of each object; None: all of it. Memory: one page, and what is kept.

        Raises:
            Problem: ``Refused`` with 410, if that happens ``LISTS`` times.
        """
        for _ in range(LISTS - 1):
            try:
                return await self._pages(path, query, keep)
            except Refused as refused:
                if refused.refusal.status != HTTPStatus.GONE:
                    raise
        return await self._pages(path, query, keep)

    async def _pages(self, path: str, query: Mapping[str, str], keep: Callable[[Json], Json] | None) -> Listing:
        items: list[Json] = []
        token = ""
        while True:
            page = {**query, "limit": str(PAGE), **({"continue": token} if token else {})}
            answer = await self._call("GET", path, query=page)
            page_items = answer.get("items") or ()
            items.extend(page_items if keep is None else map(keep, page_items))
            about = answer.get("metadata") or {}
            token = str(about.get("continue") or "")
            if not token:
                return Listing(items, str(about.get("resourceVersion") or ""))

    @asynccontextmanager
    async def watch(self, path: str, query: Mapping[str, str]) -> AsyncIterator[AsyncIterator[Json]]:
        """The events of a watch, for as long as the server keeps it open.

        Raises:
            Problem: ``Refused``; upstream_timeout or internal: the connection is lost.
        """
        what = f"WATCH {path}"
        unhurried = aiohttp.ClientTimeout(total=None, connect=CONNECT_TIMEOUT_S, sock_read=SILENCE_S)
        try:
            headers = await self.way.headers()
            async with self._http.get(
                self._url(path), params=query, headers=headers, timeout=unhurried, **self._naming
            ) as response:
                with _aborted(response):
                    await self._checked(response, what)
                    yield decoded(response, what)
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise self._unanswered(what, error) from error

    async def _call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Json | Changes | None = None,
        kind: str = "application/json",
        within_s: float = WITHIN_S,
        answered: bool = True,
    ) -> Json:
        loop = asyncio.get_running_loop()
        deadline_s, disowned_until_s = loop.time() + within_s, math.inf
        request = _Request(method, path, dict(query or {}), body, kind, answered)
        pause_s, before = FIRST_PAUSE_S, None
        while True:
            try:
                attempt = self._attempt(request, deadline_s)
                # A create is completed even when cancelled: the server may create the object anyway, and a stop that is
                # sent before that would not remove it.
                return await (finish(asyncio.create_task(attempt)) if method == "POST" else attempt)
            except Problem as problem:
                cut = isinstance(before, Refused) and isinstance(problem.__cause__, TimeoutError)
                if before is not None and (isinstance(problem, NotAskedError) or (cut and loop.time() >= deadline_s)):
                    raise before from None  # the server's refusal says more than the timeout of the last attempt
                before = problem
                # Full jitter: calls that failed at the same time must not be retried at the same time.
                wait_s = _asked_for(problem) + random.uniform(0, pause_s)  # noqa: S311
                disowned = method == "POST" and _unauthorized(problem)
                if disowned:
                    disowned_until_s = min(disowned_until_s, loop.time() + DISOWNED_S)
                passing = _passing(problem) and not _outdated(problem, request)
                passing = passing or (disowned and loop.time() + wait_s < disowned_until_s)
                if not passing or loop.time() + wait_s + LEAST_S >= deadline_s:
                    raise
                self._log.debug("retrying", what=request.what, detail=problem.detail, wait_s=round(wait_s, 2))
            await asyncio.sleep(wait_s)
            pause_s = min(2 * pause_s, LAST_PAUSE_S)

    async def _attempt(self, request: "_Request", deadline_s: float) -> Json:
        what = request.what
        async with self._turn(deadline_s - LEAST_S, what):
            try:
                async with asyncio.timeout_at(deadline_s):
                    headers = {**await self.way.headers(), "Content-Type": request.kind}
                    async with self._http.request(
                        request.method,
                        self._url(request.path),
                        params=request.query or None,
                        data=None if request.body is None else to_json(request.body),
                        headers=headers,
                        **self._naming,
                    ) as response:
                        with _aborted(response):
                            await self._checked(response, what)
                            text = await response.read()
                            answer: Json = from_json(text) if text and request.answered else {}
                            return answer
            except (aiohttp.ClientError, OSError, ValueError) as error:
                raise self._unanswered(what, error) from error

    @asynccontextmanager
    async def _turn(self, until_s: float, what: str) -> AsyncIterator[None]:
        """Limits concurrent calls. One that gets no turn in time was not sent, so it does not count as an outage."""
        if asyncio.get_running_loop().time() >= until_s:
            raise NotAskedError(what)
        try:
            async with asyncio.timeout_at(until_s):
                await self._free.acquire()
        except TimeoutError as error:
            raise NotAskedError(what) from error
        try:
            yield
        finally:
            self._free.release()

    def _unanswered(self, what: str, error: Exception) -> Problem:
        problem = unreachable(self.way.url, what, error, self._clock.now_ms())
        self._outage.failed(problem.detail)
        return problem

    async def _checked(self, response: aiohttp.ClientResponse, what: str) -> None:
        self._outage.answered()
        self._compare_clocks(response.headers.get("Date"))
        if response.status >= HTTPStatus.BAD_REQUEST:
            body = await response.read()
            raise Refused(Refusal.of(response.status, body, response.headers.get("Retry-After")), what)

    def _compare_clocks(self, date: str | None) -> None:
        # All answers of a second have the same one.
        if date == self._date:
            return
        self._date = date
        ahead_s = skew_s(date, self._clock.now_ms())
        skewed = abs(ahead_s) > MAX_SKEW_S
        if skewed and not self._skewed:
            self._log.warning(
                "clock skew to the API server: tokens and certificates may be refused, lifetimes of sandboxes are off",
                ahead_of_api_server_s=round(ahead_s),
            )
        self._skewed = skewed

    def _url(self, path: str) -> str:
        return f"{self.way.url}{path}"

    @property
    def _naming(self) -> dict[str, Any]:
        return {} if self.way.server_name is None else {"server_hostname": self.way.server_name}


def _proxy(url: str) -> dict[str, Any]:
    """The proxy settings, read once: aiohttp with ``trust_env`` would read them for every call, on two threads."""
    with suppress(LookupError):
        proxy, auth = get_env_proxy_for_url(URL(url))
        return {"proxy": proxy, "proxy_auth": auth}
    return {}


def _unauthorized(problem: Problem) -> bool:
    return isinstance(problem, Refused) and problem.refusal.status == HTTPStatus.UNAUTHORIZED


def _passing(problem: Problem) -> bool:
    if isinstance(problem, Refused):
        return problem.refusal.passing
    return problem.__cause__ is not None and not is_certificate(problem.__cause__)


def _outdated(problem: Problem, request: "_Request") -> bool:
    conflict = isinstance(problem, Refused) and problem.refusal.status == HTTPStatus.CONFLICT
    names = isinstance(request.body, dict) and request.body.get("metadata", {}).get("resourceVersion") is not None
    return conflict and names


def _asked_for(problem: Problem) -> float:
    asked_s = problem.refusal.retry_after_s if isinstance(problem, Refused) else None
    return min(asked_s or 0.0, MAX_RETRY_AFTER_S)
