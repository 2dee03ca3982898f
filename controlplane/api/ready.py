"""The one door that sidecars can reach: ``POST /v1/ready``, small and authenticated. Nothing else is served."""

from typing import Final

from fastapi import FastAPI, Request
from starlette.responses import Response

from controlplane.api import problems
from controlplane.api.auth import bearer
from controlplane.api.body_limit import BodyLimit
from controlplane.api.request_id import RequestId
from controlplane.api.schemas import PushRequest
from controlplane.errors import Problem
from controlplane.lifecycle import Push, Sandboxes

MAX_PUSH_BYTES: Final = 16 * 1024


def create_ready_app(service: Sandboxes) -> FastAPI:
    """The app for the readiness socket."""
    app = FastAPI(
        title="rollbox readiness",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        strict_content_type=False,
        redirect_slashes=False,
    )
    problems.install(app)

    @app.post("/v1/ready", status_code=204)
    async def ready(push: PushRequest, request: Request) -> Response:
        await service.accept_push(bearer(request.headers.get("authorization")), _read(push))
        return Response(status_code=204)

    app.add_middleware(BodyLimit, most_bytes=MAX_PUSH_BYTES)
    app.add_middleware(problems.Unforeseen)
    app.add_middleware(RequestId)
    return app


def _read(push: PushRequest) -> Push:
    failure = None if push.failure is None else Problem(push.failure.code, push.failure.detail)
    boot_ms = max(push.boot_us.values(), default=0) // 1000
    return Push(push.sandbox_id, push.address, push.kernel, boot_ms, failure)
