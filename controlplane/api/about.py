"""The route ``/v1/info``: describes this installation."""

from fastapi import APIRouter

from controlplane import __version__
from controlplane.api.context import App, Owner
from controlplane.api.schemas import EngineBody, InfoBody

router = APIRouter(tags=["installation"])


@router.get("/info", summary="What this installation is and offers")
async def info(context: App, owner: Owner) -> InfoBody:
    """Backend, isolation in force, network and limits."""
    what = context.service.description
    return InfoBody(
        version=__version__,
        backend=what.backend,
        engine=EngineBody(name=what.engine_name, version=what.engine_version),
        isolation=what.isolation,
        isolation_detail=what.isolation_detail,
        network=what.network,
        limits=dict(context.limits),
    )
