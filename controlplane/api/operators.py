"""Health, readiness and metrics endpoints for operators; on the control plane's own address, without an API key."""

from fastapi import APIRouter
from starlette.responses import JSONResponse, Response

from controlplane.api.context import App
from controlplane.errors import Problem
from controlplane.telemetry.metrics import MEDIA_TYPE

router = APIRouter(include_in_schema=False)


@router.get("/healthz")
async def healthz() -> Response:
    """Liveness: the process answers."""
    return JSONResponse({"status": "ok"})


@router.get("/readyz")
async def readyz(context: App) -> Response:
    """Readiness: new creates are accepted."""
    if context.service.draining:
        raise Problem("draining", "this control plane is stopping", retry_after_ms=1000)
    return JSONResponse({"status": "ok"})


@router.get("/metrics")
async def metrics(context: App) -> Response:
    """The metrics in the Prometheus text format."""
    text = context.deps.metrics.render(await context.service.levels())
    return Response(text, media_type=MEDIA_TYPE)
