"""The HTTP API: ``/v1`` with API keys, and the health and metrics endpoints for operators."""

from typing import Final

from fastapi import Depends, FastAPI
from starlette.types import ASGIApp

from controlplane.api import (
    about,
    audit,
    builds,
    capacity,
    checkpoints,
    console,
    datasets,
    egress,
    egress_presets,
    events,
    groups,
    images,
    keys,
    leases,
    nodes,
    operators,
    pools,
    ports,
    preflight,
    problems,
    quotas,
    sandboxes,
    shares,
    timeline,
)
from controlplane.api.answer_counter import AnswerCounter
from controlplane.api.body_limit import BodyLimit
from controlplane.api.context import Context
from controlplane.api.fast_path import FastPath
from controlplane.api.query import closed_query
from controlplane.api.request_id import RequestId

# The largest valid request is a create with 256 KiB of environment variables, which JSON escapes can make 6x larger.
MAX_BODY_BYTES: Final = 2 << 20
STREAMED: Final = frozenset({"/v1/images/build"})


def create_app(context: Context) -> ASGIApp:
    """The ASGI app with all middleware, serving from ``context``."""
    app = bare_app()
    app.state.context = context
    # Needed inside the framework too: its own catch-all handler would answer a route's error before the outer
    # ``Unforeseen`` sees it.
    app.add_middleware(problems.Unforeseen)
    # The rest wraps the framework, since requests that ``FastPath`` answers do not pass through the framework's layers.
    # ``RequestId`` is outermost, so that a refused body and a counted answer have a request id too.
    bounded = BodyLimit(FastPath(app, context), MAX_BODY_BYTES, STREAMED)
    audited = audit.Audited(problems.Unforeseen(bounded), context.service.audit, context.deps.clock)
    return RequestId(AnswerCounter(audited, context.deps.metrics))


def bare_app() -> FastAPI:
    """The routes without a context: enough to generate the OpenAPI document, not to serve requests."""
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
    app.include_router(shares.router, prefix="/v1", dependencies=closed)
    app.include_router(audit.router, prefix="/v1", dependencies=closed)
    app.include_router(groups.router, prefix="/v1", dependencies=closed)
    app.include_router(images.router, prefix="/v1", dependencies=closed)
    app.include_router(builds.router, prefix="/v1", dependencies=closed)
    app.include_router(checkpoints.router, prefix="/v1", dependencies=closed)
    app.include_router(ports.router, prefix="/v1", dependencies=closed)
    app.include_router(egress.router, prefix="/v1", dependencies=closed)
    app.include_router(egress_presets.router, prefix="/v1", dependencies=closed)
    app.include_router(events.router, prefix="/v1", dependencies=closed)
    app.include_router(datasets.router, prefix="/v1", dependencies=closed)
    app.include_router(pools.router, prefix="/v1", dependencies=closed)
    app.include_router(quotas.router, prefix="/v1", dependencies=closed)
    app.include_router(preflight.router, prefix="/v1", dependencies=closed)
    app.include_router(capacity.router, prefix="/v1", dependencies=closed)
    app.include_router(nodes.router, prefix="/v1", dependencies=closed)
    app.include_router(leases.router, prefix="/v1", dependencies=closed)
    app.include_router(keys.router, prefix="/v1", dependencies=closed)
    app.include_router(timeline.router, prefix="/v1", dependencies=closed)
    app.include_router(about.router, prefix="/v1", dependencies=closed)
    app.include_router(console.router, prefix="/v1")
    app.include_router(operators.router)
    return app
