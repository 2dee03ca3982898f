"""The transport of ``KubernetesClient`` by the Kubernetes client library alone, which parses no objects."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

import aiohttp
from kubernetes_asyncio.client import ApiClient

from controlplane.clock import Clock, SystemClock
from controlplane.cluster.kubernetes.api_server.access import access
from controlplane.cluster.kubernetes.api_server.client import (
    ATTEMPT_TIMEOUT_S,
    CONNECT_TIMEOUT_S,
    SILENCE_S,
    Json,
    KubernetesClient,
    _Request,
)
from controlplane.cluster.kubernetes.api_server.events import decoded


class LibraryClient(KubernetesClient):
    """Ours with its retries and limits; every request is the library's."""

    _api: ApiClient

    @classmethod
    @asynccontextmanager
    async def connect(cls, kubeconfig: Path | None, clock: Clock | None = None) -> AsyncIterator[Self]:
        way = await access(kubeconfig)
        way.configuration.connection_pool_maxsize = 0
        async with ApiClient(way.configuration) as api:
            made = cls(api.rest_client.pool_manager, way, clock or SystemClock())
            made._api = api
            yield made

    async def _library(
        self, method: str, path: str, query: Mapping[str, str], limits: Any, *, kind: str = "", body: Any = None
    ) -> aiohttp.ClientResponse:
        response: aiohttp.ClientResponse = await self._api.call_api(
            path,
            method,
            query_params=list(query.items()),
            header_params={"Accept": "application/json", **({"Content-Type": kind} if kind else {})},
            body=body,
            auth_settings=["BearerToken"],
            _preload_content=False,
            _request_timeout=limits,
        )
        return response

    @asynccontextmanager
    async def watch(self, path: str, query: Mapping[str, str]) -> AsyncIterator[AsyncIterator[Json]]:
        what = f"WATCH {path}"
        limits = aiohttp.ClientTimeout(total=None, connect=CONNECT_TIMEOUT_S, sock_read=SILENCE_S)
        try:
            async with await self._library("GET", path, query, limits) as response:
                await self._checked(response, what)
                yield decoded(response, what)
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise self._unanswered(what, error) from error

    async def _attempt(self, request: _Request, deadline_s: float) -> Json:
        what = request.what
        limits = aiohttp.ClientTimeout(total=ATTEMPT_TIMEOUT_S, connect=CONNECT_TIMEOUT_S)
        async with self._turn(deadline_s, what):
            try:
                async with (
                    asyncio.timeout_at(deadline_s),
                    await self._library(
                        request.method, request.path, request.query, limits, kind=request.kind, body=request.body
                    ) as response,
                ):
                    await self._checked(response, what)
                    answer: Json = json.loads(await response.read() or b"{}")
                    return answer
            except (aiohttp.ClientError, OSError, ValueError) as error:
                raise self._unanswered(what, error) from error
