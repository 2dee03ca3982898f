"""The routes of ``/v1/sandboxes``; each acts for the owner of the API key."""

import re
from typing import Annotated, Final

from fastapi import APIRouter, Header, Query, Request, Response

from controlplane.api import said
from controlplane.api.context import Owner, Service
from controlplane.api.hangup import unless_gone
from controlplane.api.schemas import (
    DeletedBody,
    ExtendRequest,
    FailedDelete,
    SandboxBody,
    SandboxList,
    UnboundRequest,
    UsableSandboxBody,
    WaitMs,
)
from controlplane.errors import Problem
from controlplane.lifecycle import Deleted, Sandboxes
from controlplane.lifecycle.record.callers import new_caller
from controlplane.model import LIVE, Sandbox, SandboxSpec, State
from controlplane.model.spec import MAX_START_MS

_KEY: Final = re.compile(r"[\x21-\x7e]{1,128}")
_CALL: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
# A create with an idempotency key is watched for a hang-up only after this time. A caller that hangs up earlier repeats
# the create with the key and gets the same sandbox. A claim from a pool takes less time, so it is never watched.
KEYED_FROM_S: Final = 0.05

# A retry sends less here than its body says: the body must not change, since repetitions of a key are compared by it.
Left = Annotated[int | None, Header(ge=1, le=MAX_START_MS, description="what is left of the caller's start_timeout_ms")]
# The same id for a create and all its retries.
CallId = Annotated[str | None, Header(description="names a call among all with the same key: 1 to 64 of A-Za-z0-9_-")]
# Of this create's claimed sandboxes; from a few on the next one is a cold start.
Replaced = Annotated[
    int, Header(ge=0, le=1024, include_in_schema=False, description="gateways: how many could not be bound")
]
Labels = Annotated[list[str] | None, Query(description="KEY=VALUE; repeated: all must match")]


router = APIRouter(tags=["sandboxes"])


@router.post(
    "/sandboxes",
    status_code=201,
    summary="Create a sandbox; answers when it is ready",
    responses={200: {"model": UsableSandboxBody, "description": "The key was used before with the same parameters"}},
)
async def create(
    spec: SandboxSpec,
    request: Request,
    response: Response,
    *,
    service: Service,
    owner: Owner,
    idempotency_key: Annotated[str | None, Header()] = None,
    start_timeout_ms: Left = None,
    call_id: CallId = None,
    sandboxes_replaced: Replaced = 0,
) -> UsableSandboxBody:
    """Holds the call until a command has run in the sandbox; safe to repeat with an idempotency key.

    A caller that disconnects has 30 s to come back with the key; then the sandbox ends, if no other call wants it.
    """
    key, begun = checked_key(idempotency_key, "Idempotency-Key"), list[Sandbox]()
    caller = new_caller(checked_call(call_id))
    by_ms = service.deadline_ms(spec, start_timeout_ms)
    spec = await service.started_from(owner, spec)

    async def give_up() -> None:
        # A caller that hangs up while it waits for quota or capacity has no sandbox yet.
        if begun:
            service.abandon(begun[-1], caller)

    creating = service.create(owner, spec, key, by_ms=by_ms, caller=caller, begun=begun, replaced=sandboxes_replaced)
    created = await unless_gone(request, creating, give_up, from_s=0.0 if key is None else KEYED_FROM_S)
    if created.replayed:
        response.status_code = 200
        response.headers["Idempotency-Replayed"] = "true"
    return _usable(service, created.sandbox)


@router.get("/sandboxes", summary="List sandboxes, oldest first")
async def find(
    service: Service,
    owner: Owner,
    label: Labels = None,
    state: Annotated[list[State] | None, Query(description="repeated: any of them; default: all but ended")] = None,
    everything: Annotated[bool, Query(alias="all", description="ended ones too")] = False,
) -> SandboxList:
    """The owner's sandboxes that have all the labels."""
    if state is not None and everything:
        raise Problem("invalid_argument", "give state=STATE or all=true, and not both", field="all")
    states = state if state is not None else (None if everything else LIVE)
    found = await service.find(owner, labels_of(label), states)
    silent = await service.console_views.silent_since_ms()
    return SandboxList(sandboxes=[SandboxBody.of(one, service.description, silent) for one in found])


@router.delete("/sandboxes", summary="Delete by labels or by idempotency key")
async def delete_many(
    service: Service,
    owner: Owner,
    *,
    label: Labels = None,
    idempotency_key: Annotated[str | None, Query()] = None,
    wait_ms: WaitMs = 0,
    call_id: CallId = None,
) -> DeletedBody:
    """Ends them all at once; an unknown key is withdrawn.

    With the id of a call, only what its creates with this key asked for is taken back: a sandbox that another call
    wants too lives on, and other calls may still use the key.
    """
    key = checked_key(idempotency_key, "idempotency_key")
    if (key is None) == (not label):
        raise Problem("invalid_argument", "give label=KEY=VALUE or idempotency_key=KEY, and not both")
    if key is None:
        return _deleted(await service.delete_all(owner, labels_of(label), wait_s=wait_ms / 1000))
    if call_id is None:
        return _deleted(await service.delete_key(owner, key, wait_s=wait_ms / 1000))
    return _deleted(await service.withdraw(owner, key, checked_call(call_id)))


@router.get("/sandboxes/{sandbox_id}", summary="One sandbox, also after its end")
async def get(sandbox_id: str, service: Service, owner: Owner) -> SandboxBody:
    """The record; a tombstone is kept for 24 hours if the store lasts."""
    sandbox = await service.get(owner, sandbox_id)
    return SandboxBody.of(sandbox, service.description, await service.console_views.silent_since_ms())


@router.delete("/sandboxes/{sandbox_id}", summary="Delete; answers when the end is on record and its quota free")
async def delete(sandbox_id: str, service: Service, owner: Owner, wait_ms: WaitMs = 0) -> SandboxBody:
    """Legal in every state; repeating it is success. The cluster takes it off behind the answer, unless waited for."""
    return SandboxBody.of(await service.delete(owner, sandbox_id, wait_s=wait_ms / 1000), service.description)


@router.post("/sandboxes/{sandbox_id}/unbound", status_code=204, include_in_schema=False)
async def unbound(sandbox_id: str, why: UnboundRequest, service: Service, owner: Owner) -> None:
    """For gateways only, which serve no such path: they could not bind the late settings that a create has promised.

    204: the sandbox has ended and is to be replaced, by a repetition of the create. Any other answer is the create's.
    """
    problem = Problem(why.code, why.detail)
    problem.details = {**why.details, "sandbox_id": sandbox_id}
    await service.unbound(owner, sandbox_id, problem)


@router.post("/sandboxes/{sandbox_id}/extend", summary="Let it live longer; answers with a fresh token")
async def extend(sandbox_id: str, wish: ExtendRequest, service: Service, owner: Owner) -> UsableSandboxBody:
    """Never shortens a life."""
    return _usable(service, await service.extend(owner, sandbox_id, wish.ttl_ms))


def _usable(service: Sandboxes, sandbox: Sandbox) -> UsableSandboxBody:
    return UsableSandboxBody.with_token(sandbox, service.description, service.mint(sandbox))


def _deleted(deleted: Deleted) -> DeletedBody:
    failed = [FailedDelete(id=one, code=why.code, detail=why.detail) for one, why in deleted.failed.items()]
    said.concerns(*deleted.ids, *deleted.failed)
    return DeletedBody(deleted=list(deleted.ids), failed=failed)


def labels_of(pairs: list[str] | None) -> dict[str, str]:
    """The labels in a query.

    Raises:
        Problem: invalid_argument, when one is malformed, or given twice.
    """
    labels: dict[str, str] = {}
    for pair in pairs or ():
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise Problem("invalid_argument", f"label {pair!r} is not KEY=VALUE", field="label")
        if labels.setdefault(key, value) != value:
            raise Problem(
                "invalid_argument", f"label {key} cannot be both {labels[key]!r} and {value!r}", field="label"
            )
    return labels


def checked_call(call_id: str | None) -> str:
    """The call's id, empty for none.

    Raises:
        Problem: invalid_argument, when it is malformed.
    """
    if call_id is not None and not _CALL.fullmatch(call_id):
        raise Problem("invalid_argument", "Call-Id must be 1 to 64 of A-Za-z0-9_-", field="Call-Id")
    return call_id or ""


def checked_key(key: str | None, field: str) -> str | None:
    """An idempotency key.

    Raises:
        Problem: invalid_argument, when it is malformed.
    """
    if key is not None and not _KEY.fullmatch(key):
        raise Problem("invalid_argument", f"{field} must be 1 to 128 visible ASCII characters", field=field)
    return key
