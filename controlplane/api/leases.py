"""The routes of ``/v1/leases``: clients renew leases, and sandboxes end when their lease expires."""

from typing import Annotated, Final

from fastapi import APIRouter, Path
from pydantic import BaseModel, Field

from controlplane.api.context import Owner, Service
from controlplane.api.schemas import SandboxBody
from controlplane.model import Lease
from controlplane.model.base import Closed
from controlplane.model.spec import MAX_TTL_MS

_NAME: Final = r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,126}[A-Za-z0-9])?$"
Name = Annotated[str, Path(pattern=_NAME)]

router = APIRouter(tags=["leases"])


class RenewRequest(Closed):
    """How long the lease shall hold from now."""

    ttl_ms: int = Field(ge=1_000, le=MAX_TTL_MS)


class RenewedBody(BaseModel):
    """A lease after its renewal: how many running sandboxes go with it."""

    name: str
    ttl_ms: int
    sandboxes: int


@router.post("/leases/{name}", summary="Say that the client behind a lease is still there")
async def renew(name: Name, wish: RenewRequest, service: Service, owner: Owner) -> RenewedBody:
    """Its sandboxes live on for at least as long; safe to repeat."""
    lease = Lease(name=name, ttl_ms=wish.ttl_ms)
    return RenewedBody(name=name, ttl_ms=wish.ttl_ms, sandboxes=await service.renew_lease(owner, lease))


@router.put("/sandboxes/{sandbox_id}/lease", summary="Let a sandbox go with a client")
async def attach(sandbox_id: str, lease: Lease, service: Service, owner: Owner) -> SandboxBody:
    """It ends when this lease is not renewed in time; the lease that it had before does not matter any more."""
    return SandboxBody.of(await service.give_lease(owner, sandbox_id, lease), service.description)


@router.delete("/sandboxes/{sandbox_id}/lease", summary="Let a sandbox outlive its client")
async def detach(sandbox_id: str, service: Service, owner: Owner) -> SandboxBody:
    """Its ttl and its idle timeout still hold. Repeating it is success."""
    return SandboxBody.of(await service.give_lease(owner, sandbox_id, None), service.description)
