"""The routes of ``/v1/quotas`` (for operators) and ``/v1/quota`` (an owner's own quota and its waiting creates)."""

from typing import Annotated, Self

from fastapi import APIRouter, Path
from pydantic import BaseModel, Field

from controlplane.api.context import App, Operator, Owner, OwnerOrOperator
from controlplane.errors import Problem
from controlplane.lifecycle.admission.quotas import (
    EGRESS_LIMITS,
    LEAST_BYTES_PER_SECOND,
    LIMITS,
    MOST,
    MOST_CONNECTIONS,
    OWNER,
    DeclaredQuota,
    QuotaUse,
)
from controlplane.lifecycle.waiting import Place
from controlplane.lifecycle.waiting.others import MOST_PLACES
from controlplane.model import RESOURCES, Sandbox
from controlplane.model.base import Closed

Name = Annotated[
    str, Path(pattern=OWNER, max_length=128, description="an owner; `*`: all owners without a quota of their own")
]

router = APIRouter(tags=["quotas"])


class LimitsBody(Closed):
    """At most so much of each at one time; what is left out or null has no limit. cpu and memory as requested."""

    sandboxes: int | None = Field(default=None, ge=1, le=MOST)
    cpu_millicores: int | None = Field(default=None, ge=1, le=MOST)
    memory_bytes: int | None = Field(default=None, ge=1, le=MOST)
    gpu: int | None = Field(default=None, ge=1, le=MOST)
    starting: int | None = Field(default=None, ge=1, le=MOST, description="sandboxes that are not ready yet")
    commit_bytes: int | None = Field(
        default=None, ge=1, le=MOST, description="of images that are made of sandboxes; null: the installation's limit"
    )
    egress_connections: int | None = Field(
        default=None,
        ge=1,
        le=MOST_CONNECTIONS,
        description="open from all the owner's sandboxes, at each egress replica; null: the replica's own limit",
    )
    egress_connections_per_second: int | None = Field(
        default=None,
        ge=1,
        le=MOST_CONNECTIONS,
        description="new ones of all the owner's sandboxes, at each egress replica, after as many at once",
    )
    egress_bytes_per_second: int | None = Field(
        default=None,
        ge=LEAST_BYTES_PER_SECOND,
        le=MOST,
        description="of all the owner's sandboxes, both directions together, at each egress replica",
    )
    egress_daily_bytes: int | None = Field(
        default=None,
        ge=1,
        le=MOST,
        description="of all the owner's sandboxes since midnight UTC, both directions together, at each egress replica",
    )

    @classmethod
    def of(cls, declared: DeclaredQuota | None) -> Self:
        """From a declared quota; None: no limits."""
        return cls() if declared is None else cls(**{name: getattr(declared, name) for name in LIMITS})


class UsedBody(BaseModel):
    """So much of each is in use."""

    sandboxes: int
    cpu_millicores: int
    memory_bytes: int
    gpu: int
    starting: int


class PlaceBody(BaseModel):
    """A create that waits for room: first those that no node takes, then those that no limit lets in.

    Attributes:
        position: among the owner's, from 1, whichever control plane has them; those at different ones take turns.
        waits_for: the limit that the first one waits for; ``total`` is the installation's; ``capacity_unavailable``:
            it was let in, and no node has room for it.
        why: what the nodes have left, or the scheduler's words, where no node has room.
        until_ms: when it is refused.
        estimate_ms: how long it will wait if the line moves on as it did last; null: not known yet.
    """

    position: int
    idempotency_key: str | None
    labels: dict[str, str]
    waits_for: str
    since_ms: int
    until_ms: int
    estimate_ms: int | None
    why: str = ""


class QuotaBody(BaseModel):
    """What an owner may use, what it uses, and which of its creates wait.

    Attributes:
        declared_for: the owner, or ``*`` where the quota of all others holds for it; null: none does.
        waiting: its creates that wait for room.
    """

    owner: str
    declared_for: str | None
    limits: LimitsBody
    used: UsedBody
    waiting: int

    @classmethod
    def of(cls, use: QuotaUse) -> Self:
        """From the lifecycle's view of an owner's quota."""
        return cls(**_fields(use))


class OwnQuotaBody(QuotaBody):
    """The same, with the installation's limit and the places in line (the first hundred)."""

    max_sandboxes: int | None
    sandboxes_in_all: int
    queue: list[PlaceBody]

    @classmethod
    def of(cls, use: QuotaUse) -> Self:
        """From the lifecycle's view of an owner's quota."""
        queue = [_unplaced(*one, position) for position, one in enumerate(use.unplaced[:MOST_PLACES], start=1)]
        queue += [_place(one, position) for position, one in enumerate(use.places, start=len(queue) + 1)]
        in_all = {"max_sandboxes": use.total or None, "sandboxes_in_all": use.in_all}
        return cls(**_fields(use), **in_all, queue=queue[:MOST_PLACES])


class QuotaList(BaseModel):
    """All quotas that were declared, by owner."""

    quotas: list[QuotaBody]


@router.get("/quota", summary="Your own quota, its use, and where your creates stand")
async def own(context: App, owner: Owner) -> OwnQuotaBody:
    """What every refusal for want of room refers to."""
    return OwnQuotaBody.of(await context.service.quota_use(owner))


@router.get("/quotas", summary="All declared quotas (operators)")
async def find(context: App, operator: Operator) -> QuotaList:
    """With their use; owners without a quota of their own are not listed."""
    service = context.service
    return QuotaList(quotas=[QuotaBody.of(await service.quota_use(owner)) for owner in sorted(service.quotas.declared)])


@router.get("/quotas/{name}", summary="One owner's quota, for itself and for operators")
async def get(name: Name, context: App, reader: OwnerOrOperator) -> OwnQuotaBody:
    """Also of an owner without a quota of its own: what holds for it."""
    return OwnQuotaBody.of(await context.service.quota_use(name))


@router.put("/quotas/{name}", summary="Declare an owner's quota, in the place of the one before (operators)")
async def put(name: Name, limits: LimitsBody, context: App, operator: Operator) -> QuotaBody:
    """A quota below its use ends nothing: nothing new comes in until use has fallen below it."""
    _check_egress(context, limits)
    await context.service.quotas.declare(DeclaredQuota(owner=name, **limits.model_dump()))
    return QuotaBody.of(await context.service.quota_use(name))


@router.patch("/quotas/{name}", summary="Change some limits of an owner's quota (operators)")
async def change(name: Name, limits: LimitsBody, context: App, operator: Operator) -> QuotaBody:
    """What is left out stays as it is; null takes a limit away."""
    given = limits.model_dump(include=limits.model_fields_set)
    if not given:
        raise Problem("invalid_argument", f"no limit is named: give one of {', '.join(LIMITS)}")
    _check_egress(context, limits)
    await context.service.quotas.change(name, given)
    return QuotaBody.of(await context.service.quota_use(name))


@router.delete("/quotas/{name}", summary="Take an owner's quota back (operators)")
async def delete(name: Name, context: App, operator: Operator) -> QuotaBody:
    """The quota of all others (`*`), if there is one, holds for it then. Repeating it is success."""
    if not await context.service.quotas.take_back(name) and name in context.service.quotas.declared:
        raise Problem("conflict", f"the quota of {name} was declared again meanwhile", owner=name)
    return QuotaBody.of(await context.service.quota_use(name))


def _check_egress(context: App, limits: LimitsBody) -> None:
    """Refuses limits of the network where nobody holds sandboxes to them."""
    given = next((name for name in EGRESS_LIMITS if getattr(limits, name) is not None), None)
    if given is not None and context.service.egress_feed is None:
        raise Problem("unsupported", f"{given}: egress is not installed here, so nothing enforces it", field=given)


def _place(place: Place, position: int) -> PlaceBody:
    return PlaceBody(
        position=position,
        idempotency_key=place.key,
        labels=dict(place.labels),
        waits_for=place.waits_for,
        since_ms=place.since_ms,
        until_ms=place.until_ms,
        estimate_ms=place.estimate_ms,
    )


def _unplaced(sandbox: Sandbox, why: Problem, estimate_ms: int | None, position: int) -> PlaceBody:
    return PlaceBody(
        position=position,
        idempotency_key=sandbox.idempotency_key,
        labels=sandbox.spec.labels,
        waits_for=why.code,
        since_ms=sandbox.created_at_ms,
        until_ms=sandbox.start_by_ms,
        estimate_ms=estimate_ms,
        why=why.detail,
    )


def _fields(use: QuotaUse) -> dict[str, object]:
    used = use.used
    return {
        "owner": use.owner,
        "declared_for": None if use.declared is None else use.declared.owner,
        "limits": LimitsBody.of(use.declared),
        "used": UsedBody(**{name: getattr(used, name) for name in RESOURCES}),
        "waiting": use.waiting + len(use.unplaced),
    }
