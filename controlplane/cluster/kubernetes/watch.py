"""A list that stays true: listed once, then told of every change; a lost stream resumes where it ended.

Order is what makes it lossless: a list at version V, then all changes since V. A server that has forgotten V (410) is
listed again, and the difference is told as if each change had been seen.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from http import HTTPStatus
from typing import Final, Protocol

import structlog

from controlplane.cluster.kubernetes.client import Json, KubernetesClient
from controlplane.cluster.kubernetes.refusals import Refusal, Refused
from controlplane.errors import Problem

FIRST_PAUSE_S: Final = 0.1
LAST_PAUSE_S: Final = 10.0
# A server drops streams when it likes; asking for an end ourselves spreads the reconnections out. Sooner than the
# silence that the client takes for a lost server: a quiet stream of Events has no bookmarks to break it.
STREAM_S: Final = (80, 120)


class Mirror(Protocol):
    """Who is told. Calls never wait."""

    def replace(self, objects: Sequence[Json]) -> None:
        """Everything that there is, as of now."""
        ...

    def put(self, thing: Json) -> None:
        """An object that is new or has changed."""
        ...

    def remove(self, thing: Json) -> None:
        """An object that is gone, as it was last."""
        ...


class Reflector:
    """Keeps a mirror true to one kind of object.

    Args:
        path: the collection.
        query: what narrows it: ``labelSelector``, ``fieldSelector``.
    """

    def __init__(self, client: KubernetesClient, path: str, query: Mapping[str, str], mirror: Mirror) -> None:
        self._client = client
        self._path = path
        self._query = query
        self._mirror = mirror
        self._version = ""
        self._synced = asyncio.Event()
        self._told = ""
        self._log = structlog.get_logger("watch").bind(path=path)

    @property
    def synced(self) -> bool:
        """Whether the first list has been told."""
        return self._synced.is_set()

    async def first(self) -> None:
        """Lists once, so that whoever opens the cluster learns of a server that refuses; ``run`` goes on from there.

        Raises:
            Problem: what the API server said.
        """
        await self._relist()

    async def run(self) -> None:
        """Runs until it is cancelled; trouble is logged, and tried again with growing pauses."""
        pause_s = FIRST_PAUSE_S
        while True:
            before = self._version
            try:
                if not self._version:
                    await self._relist()
                await self._follow()
            except Problem as problem:
                if _forgotten(problem):
                    self._version = ""
                    self._log.info("the API server has forgotten where we were: listing again")
                else:
                    self._complain(problem)
            if self._version != before:
                pause_s, self._told = FIRST_PAUSE_S, ""
            await asyncio.sleep(random.uniform(0, pause_s))  # noqa: S311 - spreads reconnections
            pause_s = min(2 * pause_s, LAST_PAUSE_S)

    def _complain(self, problem: Problem) -> None:
        # A server that does not answer is the client's to tell; the same refusal again is no news.
        news = problem.__cause__ is None and problem.detail != self._told
        self._told = problem.detail
        (self._log.warning if news else self._log.debug)("the watch broke", code=problem.code, detail=problem.detail)

    async def _relist(self) -> None:
        seen = await self._client.list(self._path, self._query)
        self._mirror.replace(seen.items)
        self._version = seen.version
        self._synced.set()

    async def _follow(self) -> None:
        query = {
            **self._query,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(random.randint(*STREAM_S)),  # noqa: S311
        }
        async with self._client.watch(self._path, query) as events:
            await self._tell(events)

    async def _tell(self, events: AsyncIterator[Json]) -> None:
        async for event in events:
            kind, thing = event.get("type"), event.get("object") or {}
            if kind == "ERROR":
                raise Refused(_refusal(thing), f"WATCH {self._path}")
            if kind in ("ADDED", "MODIFIED"):
                self._mirror.put(thing)
            elif kind == "DELETED":
                self._mirror.remove(thing)
            # Only after the mirror was told: what is lost in between is told again.
            self._version = str((thing.get("metadata") or {}).get("resourceVersion") or self._version)


def _refusal(status: Json) -> Refusal:
    return Refusal(int(status.get("code") or 500), str(status.get("reason") or ""), str(status.get("message") or ""))


def _forgotten(problem: Problem) -> bool:
    """Whether the version that we hold is of no use any more."""
    return isinstance(problem, Refused) and (
        problem.refusal.status == HTTPStatus.GONE
        or problem.refusal.reason in ("Expired", "Gone")
        # "Too large resource version": another server, or a restored one, behind what we have seen.
        or (problem.refusal.status == HTTPStatus.GATEWAY_TIMEOUT and "resource version" in problem.refusal.message)
    )
