"""Health, readiness and metrics endpoints for operators; on the control plane's own address, without an API key."""

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from controlplane.api.context import App
from controlplane.errors import Problem

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
async def metrics(context: App, request: Request) -> Response:
    """The metrics, as OpenMetrics or in the Prometheus text format, as the scraper asks."""
    levels = await context.service.levels()
    text, media_type = context.deps.metrics.render(levels, request.headers.get("accept", ""))
    return Response(text, media_type=media_type)
