"""``Reflector``: list and watch, as in an informer. Lists once, then follows changes; resumes after a lost connection.

No change is missed: the list is at version V, and the watch yields all changes since V. If the server does not have V
any more (410 Gone), the objects are listed again, and the mirror derives what has changed.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Final, Protocol

import structlog

from controlplane.cluster.kubernetes.api_server.client import Json, KubernetesClient
from controlplane.cluster.kubernetes.api_server.refusals import Refusal, Refused
from controlplane.errors import Problem

FIRST_PAUSE_S: Final = 0.1
LAST_PAUSE_S: Final = 10.0
# Duration of a watch, chosen at random. The server may close streams at any time; requesting an end ourselves spreads
# the reconnections out. It is shorter than the silence after which the client considers a connection lost
# (``SILENCE_S``), since a quiet watch of Events gets no bookmarks.
STREAM_S: Final = (80, 120)


class Mirror(Protocol):
    """The consumer of a ``Reflector``. Its methods do not block."""

    def replace(self, objects: Sequence[Json]) -> None:
        """Takes the list of all objects that exist."""
        ...

    def put(self, thing: Json) -> None:
        """Takes an object that is new or has changed."""
        ...

    def remove(self, thing: Json) -> None:
        """Takes a removed object in its last state."""
        ...


class Reflector:
    """Keeps a mirror in sync with one collection of objects.

    Args:
        path: the collection's path at the API server.
        query: its filters: ``labelSelector``, ``fieldSelector``.
        keep: what ``Mirror.replace`` is given of each object, so that a list takes less memory; None: all of it.
        denied: called when the API server does not let it list or watch any more; after that it lists anew.
    """

    def __init__(
        self,
        client: KubernetesClient,
        path: str,
        query: Mapping[str, str],
        mirror: Mirror,
        *,
        keep: Callable[[Json], Json] | None = None,
        denied: Callable[[], None] | None = None,
    ) -> None:
        self._client = client
        self._keep = keep
        self._denied = denied
        self._path = path
        self._query = query
        self._mirror = mirror
        self._version = ""
        self._told = ""
        self._log = structlog.get_logger("watch").bind(path=path)

    async def first(self) -> None:
        """Lists once, so that opening the cluster fails if the API server refuses; ``run`` continues from there.

        Raises:
            Problem: the API server's refusal.
        """
        await self._relist()

    async def run(self) -> None:
        """Runs until it is cancelled; failures are logged and retried with exponential backoff."""
        pause_s = FIRST_PAUSE_S
        while True:
            before, began_s, stood = self._version, _now_s(), False
            try:
                if not self._version:
                    await self._relist()
                await self._follow()
                # Without a change and without a bookmark the version stays as it was. One that ends at once again and
                # again is no success.
                stood = _now_s() - began_s >= LAST_PAUSE_S
            except Problem as problem:
                if _forgotten(problem):
                    self._version = ""
                    self._log.info("the watch's resourceVersion has expired, listing again")
                else:
                    self._complain(problem)
                    self._tell_denied(problem)
            if stood or self._version != before:
                pause_s, self._told = FIRST_PAUSE_S, ""
            await asyncio.sleep(random.uniform(0, pause_s))  # noqa: S311 - spreads reconnections
            pause_s = min(2 * pause_s, LAST_PAUSE_S)

    def _tell_denied(self, problem: Problem) -> None:
        # Not of a server that is down, which changes nothing meanwhile.
        denied = isinstance(problem, Refused) and problem.refusal.status == HTTPStatus.FORBIDDEN
        if denied and self._denied is not None:
            self._version = ""
            self._denied()

    def _complain(self, problem: Problem) -> None:
        # Warns only once about the same refusal; the client logs a server that does not answer (``Outage``).
        news = problem.__cause__ is None and problem.detail != self._told
        self._told = problem.detail
        (self._log.warning if news else self._log.debug)(
            "the watch failed, reconnecting", code=problem.code, detail=problem.detail
        )

    async def _relist(self) -> None:
        seen = await self._client.list(self._path, self._query, self._keep)
        self._mirror.replace(seen.items)
        self._version = seen.version

    async def _follow(self) -> None:
        query = {
            **self._query,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(random.randint(*STREAM_S)),  # noqa: S311
        }
        async with self._client.watch(self._path, query) as events:
            await self._pass_on(events)

    async def _pass_on(self, events: AsyncIterator[Json]) -> None:
        async for event in events:
            kind, thing = event.get("type"), event.get("object") or {}
            if kind == "ERROR":
                raise Refused(_refusal(thing), f"WATCH {self._path}")
            if kind in ("ADDED", "MODIFIED"):
                self._mirror.put(thing)
            elif kind == "DELETED":
                self._mirror.remove(thing)
            # After the mirror was updated, so that a change which is lost before that is sent again.
            self._version = str((thing.get("metadata") or {}).get("resourceVersion") or self._version)


def _now_s() -> float:
    return asyncio.get_running_loop().time()


def _refusal(status: Json) -> Refusal:
    return Refusal(int(status.get("code") or 500), str(status.get("reason") or ""), str(status.get("message") or ""))


def _forgotten(problem: Problem) -> bool:
    """Whether the resourceVersion is not valid any more."""
    return isinstance(problem, Refused) and (
        problem.refusal.status == HTTPStatus.GONE
        or problem.refusal.reason in ("Expired", "Gone")
        # "Too large resource version": another or a restored API server, which is behind the version that was seen.
        or (problem.refusal.status == HTTPStatus.GATEWAY_TIMEOUT and "resource version" in problem.refusal.message)
    )
