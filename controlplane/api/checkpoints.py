"""The route ``/v1/sandboxes/{id}/checkpoint``: images of sandboxes that have an id and end by themselves."""

from typing import Annotated, Self

from fastapi import APIRouter, Header, Request
from pydantic import BaseModel, Field

from controlplane.api.context import Owner, Service
from controlplane.api.hangup import unless_gone
from controlplane.api.images import DEFAULT_COMMIT_BYTES, DEFAULT_COMMIT_MS, MAX_COMMIT_BYTES, MAX_COMMIT_MS
from controlplane.api.sandboxes import checked_key
from controlplane.cluster import Committed
from controlplane.errors import Problem
from controlplane.images import Checkpoint, parse
from controlplane.images.checkpoints import DEFAULT_TTL_MS, MAX_TTL_MS, MIN_TTL_MS
from controlplane.lifecycle.service.commits import CommitWish
from controlplane.model.base import Closed

router = APIRouter(tags=["images"])


class CheckpointRequest(Closed):
    """What is to be kept of a sandbox.

    Attributes:
        ttl_ms: how long sandboxes may be started from it.
        max_bytes: the most that all changes since the image may have that is no checkpoint.
        timeout_ms: after which nothing is made.
    """

    ttl_ms: int = Field(DEFAULT_TTL_MS, ge=MIN_TTL_MS, le=MAX_TTL_MS)
    max_bytes: int = Field(DEFAULT_COMMIT_BYTES, ge=1, le=MAX_COMMIT_BYTES)
    timeout_ms: int = Field(DEFAULT_COMMIT_MS, ge=1_000, le=MAX_COMMIT_MS)


class CheckpointBody(BaseModel):
    """The new checkpoint.

    Attributes:
        checkpoint: its id, which a create takes in place of an image's name.
        image: the name of its image, with its digest.
        size_bytes: of its layer, which has all changes since the image that is no checkpoint.
        skipped: what of the sandbox is not in it, each with the reason.
        expires_at_ms: from when on nothing starts from it (Unix ms).
        depth: how many checkpoints it has been since that image, this one counted.
    """

    checkpoint: str
    image: str
    digest: str
    size_bytes: int
    skipped: list[str]
    expires_at_ms: int
    depth: int

    @classmethod
    def of(cls, place: str, made: Committed) -> Self:
        """From what the cluster has made.

        Raises:
            Problem: internal: it has made something else.
        """
        one = Checkpoint.of(place, parse(made.name))
        if one is None:
            raise Problem("internal", f"{made.name} is no checkpoint")
        return cls(
            checkpoint=one.id,
            image=f"{made.name}@{made.digest}",
            digest=made.digest,
            size_bytes=made.size_bytes,
            skipped=list(made.skipped),
            expires_at_ms=one.expires_at_ms,
            depth=one.depth,
        )


@router.post("/sandboxes/{sandbox_id}/checkpoint", summary="Make a checkpoint of a running sandbox")
async def checkpoint(
    sandbox_id: str,
    wish: CheckpointRequest,
    request: Request,
    *,
    service: Service,
    owner: Owner,
    idempotency_key: Annotated[str | None, Header()] = None,
) -> CheckpointBody:
    """As a commit, without a name: any number of them, of which each goes when its time is over."""

    async def give_up() -> None:
        """As for a commit."""

    key = checked_key(idempotency_key, "Idempotency-Key")
    asked = CommitWish(sandbox_id, "", wish.max_bytes, wish.timeout_ms, wish.ttl_ms)
    made = await unless_gone(request, service.commit(owner, asked, key), give_up)
    return CheckpointBody.of(service.description.commits, made)
