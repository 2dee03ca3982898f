"""The routes of ``/v1/sandboxes/{id}/ports/{port}`` that make a port public or private.

Connections to the port itself are the gateway's part.
"""

from typing import Annotated

from fastapi import APIRouter, Path

from controlplane.api.context import App, Owner
from controlplane.api.schemas import PortBody, PortRequest
from controlplane.model import Sandbox

Port = Annotated[int, Path(ge=1, le=65_535)]

router = APIRouter(tags=["ports"])


@router.post("/sandboxes/{sandbox_id}/ports/{port}", summary="Where a port is reached, and by whom")
async def expose(sandbox_id: str, port: Port, wish: PortRequest, context: App, owner: Owner) -> PortBody:
    """Public: anyone reaches it without a token, until it is taken back or the sandbox ends."""
    public = wish.visibility == "public"
    return _body(context, await context.service.open_port(owner, sandbox_id, port, public=public), port)


@router.delete("/sandboxes/{sandbox_id}/ports/{port}", summary="Take a public port back")
async def close(sandbox_id: str, port: Port, context: App, owner: Owner) -> PortBody:
    """Only callers with a token reach it from then on. Connections that are open go on. Repeating it is success."""
    return _body(context, await context.service.open_port(owner, sandbox_id, port, public=False), port)


def _body(context: App, sandbox: Sandbox, port: int) -> PortBody:
    domain = context.ports_domain
    return PortBody(
        port=port,
        visibility="public" if port in sandbox.public_ports else "private",
        url=f"/v1/sandboxes/{sandbox.id}/ports/{port}/http/",
        host_url=None if domain is None else f"//{port}-{sandbox.id}.{domain}/",
    )
