"""The route ``/v1/capacity``: what is free on the nodes, and which starts wait for room, of all owners (operators)."""

from dataclasses import asdict
from typing import Final, Self

from fastapi import APIRouter
from pydantic import BaseModel

from controlplane.api.context import Operator, Service
from controlplane.capacity import Amounts, Free
from controlplane.errors import Problem
from controlplane.lifecycle.scaling import ScalerReport
from controlplane.model import Sandbox, State

# Of each list in one answer; the numbers beside them are of all.
MOST_NODES: Final = 2_000
MOST_WAITING: Final = 100

router = APIRouter(tags=["quotas"])


class AmountsBody(BaseModel):
    """So much of each resource; ``pods``: places for pods."""

    cpu_millicores: int
    memory_bytes: int
    disk_bytes: int
    gpu: int
    pods: int

    @classmethod
    def of(cls, amounts: Amounts) -> Self:
        """From the arithmetic's form."""
        return cls(**dict(zip(cls.model_fields, amounts, strict=True)))


class NodeRoomBody(BaseModel):
    """A node that sandboxes may run on.

    Attributes:
        closed: why it takes no start now; empty: it takes some.
        allocatable: what pods may request there.
        free: of that, beside all pods there and what is reserved; negative where more is requested than there is.
        reserved: for starts whose pods are not seen there yet.
        sandboxes: of this installation.
        pods: of all namespaces.
        fits: how many more sandboxes of the default size.
    """

    name: str
    closed: str
    allocatable: AmountsBody
    free: AmountsBody
    reserved: AmountsBody
    sandboxes: int
    pods: int
    fits: int

    @classmethod
    def of(cls, free: Free, fits: int) -> Self:
        """From what the control plane knows of a node."""
        return cls(
            name=free.node.name,
            closed=free.node.closed,
            allocatable=AmountsBody.of(free.node.allocatable),
            free=AmountsBody.of(free.free),
            reserved=AmountsBody.of(free.reserved),
            sandboxes=free.sandboxes,
            pods=free.pods,
            fits=fits,
        )


class WaitingStart(BaseModel):
    """A start that fits on no node.

    Attributes:
        pending: its pod is made and the scheduler places it nowhere; else no pod of it is made.
        owner: empty: it is of a pool.
        why: what the nodes have left, or the scheduler's words.
        until_ms: when it is refused.
        estimate_ms: how long it will wait if the line moves on as it did last; null: not known yet.
    """

    sandbox_id: str
    owner: str
    pool: str
    pending: bool
    cpu_millicores: int
    memory_bytes: int
    gpu: int
    since_ms: int
    until_ms: int
    estimate_ms: int | None
    why: str

    @classmethod
    def of(cls, sandbox: Sandbox, why: Problem, estimate_ms: int | None) -> Self:
        """From the lifecycle's view of it."""
        spec = sandbox.spec
        return cls(
            sandbox_id=sandbox.id,
            owner="" if sandbox.unclaimed else sandbox.owner,
            pool=sandbox.pool,
            pending=sandbox.state is State.STARTING,
            cpu_millicores=spec.cpu_millicores.request,
            memory_bytes=spec.memory_bytes.request,
            gpu=spec.gpu,
            since_ms=sandbox.created_at_ms,
            until_ms=sandbox.start_by_ms,
            estimate_ms=estimate_ms,
            why=why.detail,
        )


class NodePoolBody(BaseModel):
    """A node pool, as the scaler has seen and decided last.

    Attributes:
        provider: the kind of what adds and removes its nodes.
        min, max: how many it may have.
        ready: nodes that take starts.
        coming: nodes that were asked for and are not Ready.
        leaving: nodes that are being emptied.
        wanted: how many it is to have.
        why: what is done about it, and what is wrong with it; empty: nothing.
        paused_until_ms: until when no node of it is asked for; null: it does not pause.
    """

    name: str
    provider: str
    min: int
    max: int
    ready: int
    coming: int
    leaving: int
    wanted: int
    why: str
    paused_until_ms: int | None


class UnplacedBody(BaseModel):
    """So many sandboxes of one size that fit on no node, there or to come.

    Attributes:
        need: waiting: starts; idle, pool: of pools; ahead: expected ones; headroom: declared.
    """

    count: int
    need: str
    cpu_millicores: int
    memory_bytes: int
    gpu: int
    why: str


class ScalingBody(BaseModel):
    """What the scaler has decided last, whichever control plane it works at.

    Attributes:
        at_ms: when; null: it has decided nothing within the last minute.
        dry_run: it decides and does nothing.
        steps: what it did then, or would have done.
        unplaced: the first of them; ``unplaced_in_all`` counts starts that wait alone.
    """

    at_ms: int | None
    dry_run: bool
    node_pools: list[NodePoolBody]
    steps: list[str]
    unplaced: list[UnplacedBody]
    unplaced_in_all: int

    @classmethod
    def of(cls, report: ScalerReport) -> Self:
        """From the scaler's report."""
        return cls(
            at_ms=report.at_ms or None,
            dry_run=report.dry_run,
            node_pools=[
                NodePoolBody(
                    name=one.name,
                    provider=one.provider,
                    min=one.least,
                    max=one.most,
                    ready=one.ready,
                    coming=one.coming,
                    leaving=one.leaving,
                    wanted=one.wanted,
                    why=one.why,
                    paused_until_ms=one.paused_until_ms or None,
                )
                for one in report.pools
            ],
            steps=[*report.steps],
            unplaced=[UnplacedBody(**asdict(one)) for one in report.unplaced],
            unplaced_in_all=report.unplaced_in_all,
        )


class CapacityBody(BaseModel):
    """Room on the nodes, as the control plane that answers sees it.

    Attributes:
        known: whether it is known what is free. Not on engines, which set nothing aside.
        nodes: by name, the first two thousand of ``nodes_in_all``.
        free: of all nodes that take starts, together.
        fits: how many more sandboxes of the default size.
        sandboxes: on all nodes.
        waiting: the first hundred of ``waiting_in_all``, those at the control plane that answers first.
        pending_pods: how many starts of each control plane may have pods that fit nowhere; 0: no node can be added.
        scaling: what the scaler does; null: this installation has none.
    """

    known: bool
    nodes: list[NodeRoomBody]
    nodes_in_all: int
    free: AmountsBody
    fits: int
    sandboxes: int
    waiting: list[WaitingStart]
    waiting_in_all: int
    pending_pods: int
    scaling: ScalingBody | None


@router.get("/capacity", summary="What is free on the nodes, and what waits for room (operators)")
async def capacity(service: Service, operator: Operator) -> CapacityBody:
    """True of this moment. How many of a run fit says ``/v1/preflight``, to every owner."""
    seen = service.capacity()
    scaling = await service.scaling()
    waiting = [WaitingStart.of(*one) for one in seen.waiting[:MOST_WAITING]]
    return CapacityBody(
        known=seen.known,
        nodes=[NodeRoomBody.of(*one) for one in seen.nodes[:MOST_NODES]],
        nodes_in_all=len(seen.nodes),
        free=AmountsBody.of(seen.free),
        fits=sum(fits for _, fits in seen.nodes),
        sandboxes=sum(one.sandboxes for one, _ in seen.nodes),
        waiting=waiting,
        waiting_in_all=len(seen.waiting),
        pending_pods=seen.pending_pods,
        scaling=None if scaling is None else ScalingBody.of(scaling),
    )
