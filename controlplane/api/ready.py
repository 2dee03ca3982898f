"""The only endpoint that sidecars can reach: ``POST /v1/ready``, for small authenticated readiness pushes.

It does not use FastAPI: hundreds of pushes arrive at once, and a create waits for each of them. A push costs 0.5 ms.
"""

from http import HTTPStatus
from typing import Final

import structlog
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from controlplane.api import problems
from controlplane.api.auth import bearer
from controlplane.api.body_limit import BodyLimit
from controlplane.api.request_id import RequestId
from controlplane.api.schemas import PushRequest
from controlplane.errors import Problem
from controlplane.lifecycle import Push, Sandboxes

MAX_PUSH_BYTES: Final = 16 * 1024
PATH: Final = "/v1/ready"

_log = structlog.get_logger("ready")


def create_ready_app(service: Sandboxes) -> ASGIApp:
    """The ASGI app for the readiness socket; serves nothing else."""
    return RequestId(problems.Unforeseen(BodyLimit(_Door(service), most_bytes=MAX_PUSH_BYTES)))


class _Door:
    def __init__(self, service: Sandboxes) -> None:
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        answer = await self._answer(Request(scope, receive))
        await answer(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        path: str = request.scope["path"]
        asked = f"{request.method} {path}"
        if path != PATH:
            return problems.answer(Problem("invalid_argument", f"there is nothing at {asked}"), HTTPStatus.NOT_FOUND)
        if request.method != "POST":
            refusal = Problem("invalid_argument", f"{asked}: the method is not allowed here")
            return problems.answer(refusal, HTTPStatus.METHOD_NOT_ALLOWED, {"Allow": "POST"})
        try:
            credential = bearer(request.headers.get("authorization"))
            await self._service.accept_push(credential, _read(await request.body()))
        except Problem as problem:
            _log.info("readiness push refused, it makes no sandbox ready", code=problem.code, detail=problem.detail)
            return problems.answer(problem)
        except HTTPException as refused:  # the body is too long
            return problems.answer(Problem("payload_too_large", refused.detail))
        except ClientDisconnect:
            return Response(status_code=400)  # the sidecar has disconnected, so nothing receives this
        return Response(status_code=204)


def _read(body: bytes) -> Push:
    try:
        push = PushRequest.model_validate_json(body)
    except ValidationError as error:
        raise problems.invalid(error.errors(include_url=False)) from error
    failure = None if push.failure is None else Problem(push.failure.code, push.failure.detail)
    boot_ms = max(push.boot_us.values(), default=0) // 1000
    return Push(push.sandbox_id, push.address, push.kernel, boot_ms, failure)
