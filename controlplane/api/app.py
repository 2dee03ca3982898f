"""The HTTP API for callers: ``/v1`` behind API keys, and what operators look at."""

from typing import Final

from fastapi import Depends, FastAPI
from starlette.types import ASGIApp

from controlplane.api import (
    about,
    groups,
    leases,
    operators,
    pools,
    ports,
    preflight,
    problems,
    quotas,
    sandboxes,
    timeline,
)
from controlplane.api.body_limit import BodyLimit
from controlplane.api.context import Context
from controlplane.api.counted import Counted
from controlplane.api.plain import Plain
from controlplane.api.query import closed_query
from controlplane.api.request_id import RequestId

# The largest honest request is a create with a full environment (256 KiB, as JSON at most six times that).
MAX_BODY_BYTES: Final = 2 << 20


def create_app(context: Context) -> ASGIApp:
    """The app that answers from ``context``."""
    app = bare_app()
    app.state.context = context
    # Inside, too: what fails in a route is answered by the framework's own net before it is seen out here.
    app.add_middleware(problems.Unforeseen)
    # Around the framework, not inside: what ``Plain`` answers does not pass its layers.
    # An id first, so that a refused body and a counted answer have one too.
    bounded = BodyLimit(Plain(app, context), MAX_BODY_BYTES)
    return RequestId(Counted(problems.Unforeseen(bounded), context.parts.metrics))


def bare_app() -> FastAPI:
    """The routes alone: enough to describe the API, not to answer."""
    app = FastAPI(
        title="rollbox control plane",
        version="1",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        strict_content_type=False,
        redirect_slashes=False,
    )
    problems.install(app)
    closed = [Depends(closed_query)]
    app.include_router(sandboxes.router, prefix="/v1", dependencies=closed)
    app.include_router(groups.router, prefix="/v1", dependencies=closed)
    app.include_router(ports.router, prefix="/v1", dependencies=closed)
    app.include_router(pools.router, prefix="/v1", dependencies=closed)
    app.include_router(quotas.router, prefix="/v1", dependencies=closed)
    app.include_router(preflight.router, prefix="/v1", dependencies=closed)
    app.include_router(leases.router, prefix="/v1", dependencies=closed)
    app.include_router(timeline.router, prefix="/v1", dependencies=closed)
    app.include_router(about.router, prefix="/v1", dependencies=closed)
    app.include_router(operators.router)
    return app
