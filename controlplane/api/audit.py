"""Audit entries of calls: the middleware that records them, and ``GET /v1/audit``, where operators read them."""

import time
from dataclasses import asdict
from typing import Annotated, Final

from fastapi import APIRouter, Query
from pydantic import BaseModel
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from controlplane.access import route_of
from controlplane.api import said
from controlplane.api.context import Operator, Service
from controlplane.api.request_id import request_id
from controlplane.clock import Clock
from controlplane.lifecycle.audit import AuditEntry, AuditQuery, AuditTrail, names_of

CLIENT_ADDRESS: Final = "rollbox-client-address"
MOST_READ: Final = 10_000
# The caller had gone before there was an answer: as proxies log it.
GONE: Final = 499
MOST_ADDRESS_CHARS: Final = 128

router = APIRouter(tags=["operators"])


class Audited:
    """Middleware: records calls with a key that is in force, of routes that change something or open a sandbox."""

    def __init__(self, app: ASGIApp, trail: AuditTrail, clock: Clock) -> None:
        self._app, self._trail, self._clock = app, trail, clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        route = route_of(scope["method"], scope["path"]) if scope["type"] == "http" and self._trail.on else None
        if route is None or not route.audited:
            await self._app(scope, receive, send)
            return
        at_ms, began_s, status = self._clock.now_ms(), time.perf_counter(), GONE

        async def seen(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        with said.listening() as told:
            try:
                await self._app(scope, receive, seen)
            finally:
                if told.caller is not None:
                    headers = Headers(scope=scope)
                    entry = AuditEntry(
                        at_ms=at_ms,
                        took_ms=round((time.perf_counter() - began_s) * 1000),
                        request_id=request_id(),
                        owner=told.caller.owner,
                        key_id=told.caller.key_id,
                        address=headers.get(CLIENT_ADDRESS, "")[:MOST_ADDRESS_CHARS],
                        forwarded_for=headers.get("x-forwarded-for", "")[:MOST_ADDRESS_CHARS],
                        action=f"{route.method} {route.template}",
                        names=names_of(route.names, told.about),
                        status=status,
                        code=told.code,
                    )
                    self._trail.record(entry)


class AuditEntryBody(BaseModel):
    """One call that changed something or opened a sandbox.

    Attributes:
        at_ms: when it came (Unix ms).
        took_ms: until its answer had ended.
        owner, key_id: whose key it had, and which (``settings``: one of the settings).
        address: of the client, as the gateway sees it.
        forwarded_for: what proxies before the gateway claim; a client can claim it too.
        action: method and route.
        names: what the route names, then the sandboxes that it opened or ended.
        status: of the answer; 499: the caller had gone before there was one.
        code: of the problem; empty: there was none.
    """

    at_ms: int
    took_ms: int
    request_id: str
    owner: str
    key_id: str
    address: str
    forwarded_for: str
    action: str
    names: list[str]
    status: int
    code: str


class AuditList(BaseModel):
    """Audit entries, oldest first."""

    entries: list[AuditEntryBody]


@router.get("/audit", summary="Which key has done what (operators)")
async def find(
    service: Service,
    _: Operator,
    *,
    after_ms: Annotated[int, Query(ge=0, description="later ones than this (Unix ms)")] = 0,
    owner: str | None = None,
    key_id: str | None = None,
    name: Annotated[str | None, Query(description="about this sandbox, pool, image, key, ...")] = None,
    of_request: Annotated[str | None, Query(alias="request_id")] = None,
    most: Annotated[int, Query(ge=1, le=MOST_READ, description="the newest of them")] = 1_000,
) -> AuditList:
    """The newest entries that are kept, of all replicas, some tenths of a second behind."""
    query = AuditQuery(after_ms, owner, key_id, of_request, name, most)
    found = await service.audit.find(query)
    return AuditList(entries=[AuditEntryBody.model_validate(asdict(one)) for one in found])
