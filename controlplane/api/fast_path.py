"""A fast path for the most frequent calls (create, get, delete), past FastAPI, which took a fifth of their cost.

Only a valid request is answered here: a valid body, a known API key, no query string. Every other request goes on to
FastAPI, which reports what is wrong with it. The routes' functions do the work in both cases, so both paths answer
alike, and the OpenAPI document describes them.
"""

import json
import re
from collections.abc import Awaitable
from typing import Final

from pydantic import BaseModel
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from controlplane.api import problems, sandboxes
from controlplane.api.context import Context, caller_of
from controlplane.errors import Problem
from controlplane.model import SandboxSpec

PATH: Final = "/v1/sandboxes"
_ONE: Final = re.compile(rf"{PATH}/(sb-[0-9a-z]+)")
_JSON: Final = "application/json"
# 1 to 2,999,999 ms; any other value goes to FastAPI, which checks it.
_LEFT: Final = re.compile(r"[1-9][0-9]{0,5}|[12][0-9]{6}")


class FastPath:
    """Middleware: answers valid requests to create, get or delete one sandbox; passes all others on."""

    def __init__(self, app: ASGIApp, context: Context) -> None:
        self._app = app
        self._context = context

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        answer: Response | None = None
        if scope["type"] == "http" and not scope["query_string"]:
            request = Request(scope, receive)
            if scope["method"] in ("GET", "DELETE"):
                answer = await self._one(request)
            elif scope["method"] == "POST" and scope["path"] == PATH and _announced(request):
                try:
                    body = await request.body()
                except ClientDisconnect:
                    return
                answer = await self._create(request, body)
                receive = _again(body, receive)
        await (self._app if answer is None else answer)(scope, receive, send)

    async def _one(self, request: Request) -> Response | None:
        found = _ONE.fullmatch(request.scope["path"])
        owner = None if found is None else await self._owner(request)
        if found is None or owner is None:
            return None
        work = sandboxes.get if request.method == "GET" else sandboxes.delete
        return await _answered(work(found[1], self._context.service, owner), Response(status_code=200))

    async def _create(self, request: Request, body: bytes) -> Response | None:
        spec, owner = _spec(body), await self._owner(request)
        left = request.headers.get("start-timeout-ms")
        if spec is None or owner is None or (left is not None and not _LEFT.fullmatch(left)):
            return None
        if "sandboxes-replaced" in request.headers:
            return None
        headers, answer = request.headers, Response(status_code=201)
        work = sandboxes.create(
            spec,
            request,
            answer,
            service=self._context.service,
            owner=owner,
            idempotency_key=headers.get("idempotency-key"),
            start_timeout_ms=None if left is None else int(left),
            call_id=headers.get("call-id"),
        )
        return await _answered(work, answer)

    async def _owner(self, request: Request) -> str | None:
        """The owner of the call's key; None: it is refused, and FastAPI says why and counts that."""
        try:
            return (await caller_of(self._context, request)).owner
        except Problem:
            return None


def _announced(request: Request) -> bool:
    """Whether the body is JSON with a Content-Length, which ``BodyLimit`` has checked."""
    return request.headers.get("content-type") == _JSON and "content-length" in request.headers


def _spec(body: bytes) -> SandboxSpec | None:
    try:
        return SandboxSpec.model_validate(json.loads(body))
    except (ValueError, RecursionError):
        return None


async def _answered(work: Awaitable[BaseModel], like: Response) -> Response:
    """The answer of a route's coroutine, with the status and headers that the route has set on ``like``."""
    try:
        content = (await work).model_dump_json()
    except Problem as problem:
        return problems.answer(problem)
    headers = {name: value for name, value in like.headers.items() if name != "content-length"}
    return Response(content, like.status_code, headers, _JSON)


def _again(body: bytes, receive: Receive) -> Receive:
    """A ``receive`` that first returns a body that was read already, then continues with ``receive``."""
    first: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def read() -> Message:
        return first.pop() if first else await receive()

    return read
