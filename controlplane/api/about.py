"""The route ``/v1/info``: describes this installation."""

from importlib.metadata import PackageNotFoundError, version

from fastapi import APIRouter

from controlplane.api.context import App, Owner
from controlplane.api.schemas import EngineBody, InfoBody

router = APIRouter(tags=["installation"])


@router.get("/info", summary="What this installation is and offers")
async def info(context: App, owner: Owner) -> InfoBody:
    """Backend, isolation in force, network and limits."""
    what = context.service.description
    return InfoBody(
        version=product_version(),
        backend=what.backend,
        engine=EngineBody(name=what.engine_name, version=what.engine_version),
        isolation=what.isolation,
        isolation_detail=what.isolation_detail,
        network=what.network,
        limits=dict(context.limits),
    )


def product_version() -> str:
    """The version of the installed distribution, or ``0.0.0+source`` when run from a source tree."""
    try:
        return version("rollbox")
    except PackageNotFoundError:
        return "0.0.0+source"
