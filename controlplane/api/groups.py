"""The routes of ``/v1/groups``: sandboxes for the samples of one prompt, in one call."""

from typing import Annotated, Self

from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel, Field

from controlplane.api import said
from controlplane.api.context import Owner, Service
from controlplane.api.hangup import unless_gone
from controlplane.api.request_id import request_id
from controlplane.api.sandboxes import KEYED_FROM_S, CallId, Left, Replaced, checked_call
from controlplane.api.schemas import DeletedBody, FailedDelete, UsableSandboxBody, WaitMs
from controlplane.errors import Code, Fault, Problem
from controlplane.lifecycle.record.callers import new_caller
from controlplane.lifecycle.service.groups import Groups, Members
from controlplane.lifecycle.service.sandboxes import Sandboxes
from controlplane.model import Sandbox, SandboxSpec
from controlplane.model.base import Closed

MOST_SAMPLES = 1024

Name = Annotated[str, Path(pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,98}[A-Za-z0-9])?$")]

router = APIRouter(tags=["groups"])


class GroupRequest(Closed):
    """Sandboxes that are alike; they get the labels ``rollbox.group`` (the name) and ``rollbox.sample`` (a number)."""

    count: int = Field(ge=1, le=MOST_SAMPLES)
    partial: bool = False
    sandbox: SandboxSpec


class ProblemBody(BaseModel):
    """Why a sample has no sandbox, as a failed call of its own would say it."""

    type: str
    title: str
    status: int
    detail: str
    code: Code
    fault: Fault
    retry: str
    mask_sample: bool
    hint: str
    request_id: str
    retry_after_ms: int | None = None
    details: dict[str, str]


class MemberBody(BaseModel):
    """One sample: its sandbox, or why it has none."""

    sample: int
    sandbox: UsableSandboxBody | None
    problem: ProblemBody | None

    @classmethod
    def of(cls, service: Sandboxes, sample: int, member: Sandbox | Problem) -> Self:
        """From a group's member: its sandbox, or the problem that it has instead."""
        if isinstance(member, Problem):
            told = ProblemBody.model_validate(member.to_json(request_id()))
            return cls(sample=sample, sandbox=None, problem=told)
        body = UsableSandboxBody.with_token(member, service.description, service.mint(member))
        return cls(sample=sample, sandbox=body, problem=None)


class GroupBody(BaseModel):
    """A group by samples, in their order."""

    name: str
    members: list[MemberBody]

    @classmethod
    def of(cls, service: Sandboxes, name: str, members: Members) -> Self:
        """From a group's members."""
        return cls(name=name, members=[MemberBody.of(service, sample, one) for sample, one in members.items()])


@router.put("/groups/{name}", summary="Create a group of sandboxes; answers when the last one is ready")
async def create(
    name: Name,
    wish: GroupRequest,
    request: Request,
    service: Service,
    owner: Owner,
    *,
    start_timeout_ms: Left = None,
    call_id: CallId = None,
    sandboxes_replaced: Replaced = 0,
) -> GroupBody:
    """Safe to repeat: the same name with the same parameters gives the same sandboxes.

    With ``partial`` each sample has its sandbox or its problem; without, the first failure is the answer and nothing
    is left of what this call has asked for. A caller that disconnects has 30 s to come back, as with one sandbox.
    """
    caller, begun = new_caller(checked_call(call_id)), list[Sandbox]()
    by_ms = service.deadline_ms(wish.sandbox, start_timeout_ms)
    spec = await service.started_from(owner, wish.sandbox)

    async def give_up() -> None:
        for sandbox in begun:
            service.abandon(sandbox, caller)

    creating = Groups(service).create(
        owner,
        name,
        spec,
        wish.count,
        by_ms,
        partial=wish.partial,
        caller=caller,
        begun=begun,
        replaced=sandboxes_replaced,
    )
    members = await unless_gone(request, creating, give_up, from_s=KEYED_FROM_S)
    return GroupBody.of(service, name, members)


@router.get("/groups/{name}", summary="A group with fresh tokens, to connect to it again")
async def get(name: Name, service: Service, owner: Owner) -> GroupBody:
    """Waits for sandboxes that are starting; those that have ended tell why."""
    return GroupBody.of(service, name, await Groups(service).get(owner, name))


@router.delete("/groups/{name}", summary="Delete a group; answers when the ends are on record and their quota free")
async def delete(
    name: Name,
    service: Service,
    owner: Owner,
    *,
    count: Annotated[int, Query(ge=0, le=MOST_SAMPLES, description="creates that may still arrive")] = 0,
    wait_ms: WaitMs = 0,
    call_id: CallId = None,
) -> DeletedBody:
    """Legal at any time, also while the group is being created; repeating it is success.

    With the id of a call and the count of its samples, only what that call asked for is taken back.
    """
    groups = Groups(service)
    if call_id is None:
        deleted = await groups.delete(owner, name, count, wait_s=wait_ms / 1000)
    else:
        deleted = await groups.withdraw(owner, name, count, checked_call(call_id))
    failed = [FailedDelete(id=one, code=why.code, detail=why.detail) for one, why in deleted.failed.items()]
    said.concerns(*deleted.ids, *deleted.failed)
    return DeletedBody(deleted=list(deleted.ids), failed=failed)
