"""The route ``/v1/preflight``: compares what a run needs with what is available, before the run begins."""

from fastapi import APIRouter
from pydantic import BaseModel, Field

from controlplane.api.context import Owner, Service
from controlplane.cluster import ImageState
from controlplane.errors import Code
from controlplane.model import SandboxSpec
from controlplane.model.base import Closed

# A guess: ten times the largest run that is known.
MOST_SANDBOXES = 1_000_000

router = APIRouter(tags=["quotas"])


class PreflightRequest(Closed):
    """A run: so many sandboxes of one kind at the same time."""

    sandbox: SandboxSpec
    count: int = Field(ge=1, le=MOST_SANDBOXES)


class NeedBody(BaseModel):
    """One bound that the run meets.

    Attributes:
        resource: a field of the quota, ``total`` (all sandboxes here) or ``capacity`` (what the nodes hold).
        needed: by the whole run.
        limit: null: none.
        may_run: how many of the run's sandboxes it lets run now; null: any number.
        may_run_alone: how many when nothing else runs.
    """

    resource: str
    needed: int
    used: int
    limit: int | None
    may_run: int | None
    may_run_alone: int | None


class BlockerBody(BaseModel):
    """Why the run cannot have all its sandboxes now; ``for_good``: waiting does not help."""

    code: Code
    detail: str
    hint: str
    for_good: bool


class ProspectBody(BaseModel):
    """What a node pool may bring for the run.

    Attributes:
        nodes: asked for and not there, or still to be asked for.
        sandboxes: how many of the run have room on them.
        within_s: how long a node may take.
        why: why none comes at present; empty: they may.
    """

    pool: str
    nodes: int
    sandboxes: int
    within_s: int
    why: str


class PreflightBody(BaseModel):
    """What becomes of the run.

    Attributes:
        fits: all of it can run together now.
        may_have: so many of it can run together now.
        may_have_alone: so many when nothing else runs, and all nodes have come that may.
        warm: ready in pools for it, now; others may claim them first.
        requests: what each of its sandboxes has set aside of its limits, in words.
        image: on the machines (``here``), in its registry (``elsewhere``), or not known before it is pulled.
        estimate_ms: until those that may be had are ready; null: not known yet.
        nodes_may_come: by node pool; empty: nothing adds nodes here, or none that takes the run.
    """

    fits: bool
    count: int
    may_have: int
    may_have_alone: int
    warm: int
    requests: str
    image: ImageState
    needs: list[NeedBody]
    blockers: list[BlockerBody]
    estimate_ms: int | None
    nodes_may_come: list[ProspectBody]


@router.post("/preflight", summary="What a run needs against quota, capacity, image and policies; starts nothing")
async def preflight(run: PreflightRequest, service: Service, owner: Owner) -> PreflightBody:
    """True of this moment: nothing is set aside."""
    spec, requests = service.filled(await service.started_from(owner, run.sandbox))
    forecast, image = await service.forecast(owner, spec, run.count)
    needs = [
        NeedBody(
            resource=need.resource,
            needed=need.needed,
            used=need.used,
            limit=need.limit or None,
            may_run=need.places,
            may_run_alone=need.most,
        )
        for need in forecast.needs
    ]
    blockers = [
        BlockerBody(code=one.code, detail=one.detail, hint=one.hint, for_good=one.for_good) for one in forecast.blockers
    ]
    return PreflightBody(
        fits=forecast.fits,
        count=forecast.count,
        may_have=forecast.may_have,
        may_have_alone=forecast.most,
        warm=forecast.warm,
        requests=requests,
        image=image,
        needs=needs,
        blockers=blockers,
        estimate_ms=forecast.estimate_ms,
        nodes_may_come=[
            ProspectBody(pool=one.pool, nodes=one.nodes, sandboxes=one.sandboxes, within_s=one.within_s, why=one.why)
            for one in forecast.may_come
        ],
    )
