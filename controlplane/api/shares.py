"""The routes by which a sandbox is opened to a client that has not made it: its token, and a key for somebody else."""

from typing import Self

from fastapi import APIRouter
from pydantic import BaseModel, Field

from controlplane.access import SHARE_PREFIX
from controlplane.api import said
from controlplane.api.context import FromCaller, Service
from controlplane.api.schemas import UsableSandboxBody
from controlplane.lifecycle.tokens import Token
from controlplane.model.base import Closed

# A week: who needs it for longer has a key of the owner.
MOST_SHARE_MS = 7 * 24 * 3_600_000

router = APIRouter(tags=["sandboxes"])


class ShareRequest(Closed):
    """How long a sandbox is shared."""

    ttl_ms: int = Field(default=600_000, ge=1000, le=MOST_SHARE_MS, description="never longer than the caller's key")


class ShareBody(BaseModel):
    """A key for one sandbox, which is shown once.

    Attributes:
        key: it, a secret; where an API key is asked for.
        expires_at_ms: when it is over, also where the sandbox lives on.
    """

    sandbox_id: str
    key: str
    expires_at_ms: int

    @classmethod
    def of(cls, sandbox_id: str, made: Token) -> Self:
        """From the signed text."""
        said.concerns(sandbox_id)
        return cls(sandbox_id=sandbox_id, key=SHARE_PREFIX + made.text, expires_at_ms=made.expires_at_ms)


@router.post("/sandboxes/{sandbox_id}/token", summary="A fresh token, to connect to a sandbox that runs")
async def token(sandbox_id: str, service: Service, caller: FromCaller) -> UsableSandboxBody:
    """Refused with the end's cause when it does not run any more. With a shared key it holds no longer than that."""
    sandbox = await service.alive(caller.owner, sandbox_id)
    until_ms = None if caller.only_sandbox is None else caller.expires_at_ms
    return UsableSandboxBody.with_token(sandbox, service.description, service.mint(sandbox, until_ms))


@router.post("/sandboxes/{sandbox_id}/share", summary="A key that opens this sandbox alone, for somebody else")
async def share(sandbox_id: str, wish: ShareRequest, service: Service, caller: FromCaller) -> ShareBody:
    """Commands, files and ports, until it expires; not its end, network, or life. It ends with the key that made it."""
    sandbox = await service.alive(caller.owner, sandbox_id)
    return ShareBody.of(sandbox_id, service.share(sandbox, caller, wish.ttl_ms))
