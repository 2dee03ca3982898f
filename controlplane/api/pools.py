"""The routes of ``/v1/pools``: every owner may read pools, operators may declare them."""

from typing import Annotated, Self

from fastapi import APIRouter, Path, Response
from pydantic import BaseModel, Field

from controlplane.api.context import Operator, Owner, Service
from controlplane.errors import Code
from controlplane.lifecycle.pools import Shown
from controlplane.model.pool import POOL_NAME, PoolChange, PoolSpec

Name = Annotated[str, Path(pattern=f"^{POOL_NAME}$", max_length=63)]

router = APIRouter(tags=["pools"])


class FailureBody(BaseModel):
    """Starts that have failed since the last one that did not, by code; ``detail`` is the last one's."""

    code: Code
    detail: str
    count: int


class PoolStatus(BaseModel):
    """How a pool is; every control plane tells the same, a second late at most.

    But of an agent-sandbox ``SandboxWarmPool``: only the control plane that plans tells how it is, since nothing may be
    written beside it. The others say so in ``why``, with zeros.

    Attributes:
        ready: can be claimed.
        starting: of its template, and not ready yet.
        outdated: of an older template or age; they serve until others are ready.
        wanted: how many there should be now.
        claimed_per_minute: asked for in the last minute, served or not.
        why: in a sentence, why so many are wanted, and what is in the way.
        paused_until_ms: nothing is started before, since starts fail; null: not paused.
    """

    ready: int = 0
    starting: int = 0
    outdated: int = 0
    wanted: int = 0
    claimed_per_minute: int = 0
    why: str = "it has not been planned yet"
    failures: list[FailureBody] = Field(default_factory=list)
    paused_until_ms: int | None = None


class PoolBody(BaseModel):
    """A pool as it is declared, and as it is.

    Attributes:
        spec: null when the declaration is not sound: then ``trouble`` says why, and nothing is started or stopped.
    """

    name: str
    spec: PoolSpec | None
    trouble: str
    status: PoolStatus

    @classmethod
    def of(cls, shown: Shown) -> Self:
        """From the lifecycle's view of a pool."""
        declared = shown.declared
        status = PoolStatus.model_validate(shown.status)
        return cls(name=declared.name, spec=declared.spec, trouble=declared.trouble, status=status)


class PoolList(BaseModel):
    """All pools, by name."""

    pools: list[PoolBody]


class RemovedPool(BaseModel):
    """Whether there was one of that name."""

    name: str
    removed: bool


@router.get("/pools", summary="All pools")
async def find(service: Service, _: Owner) -> PoolList:
    """By name."""
    return PoolList(pools=[PoolBody.of(one) for one in await service.pools.list()])


@router.get("/pools/{name}", summary="One pool, and why it is as it is")
async def get(name: Name, service: Service, _: Owner) -> PoolBody:
    """The status is a few seconds old at most."""
    return PoolBody.of(await service.pools.get(name))


@router.put("/pools/{name}", summary="Declare a pool, in the place of the one before (operators)")
async def put(name: Name, spec: PoolSpec, service: Service, response: Response, _: Operator) -> PoolBody:
    """A new template rolls the pool: old ones serve until new ones are ready. What was claimed goes on in any case."""
    shown, fresh = await service.pools.put(name, spec)
    response.status_code = 201 if fresh else 200
    return PoolBody.of(shown)


@router.patch("/pools/{name}", summary="Change a pool: sizes, rates, drain (operators)")
async def change(name: Name, wish: PoolChange, service: Service, _: Operator) -> PoolBody:
    """What is left out stays as it is."""
    return PoolBody.of(await service.pools.change(name, wish))


@router.delete("/pools/{name}", summary="Take a pool back (operators)")
async def delete(name: Name, service: Service, _: Operator) -> RemovedPool:
    """What it keeps ends; what was claimed goes on. Repeating it is success."""
    return RemovedPool(name=name, removed=await service.pools.remove(name))
