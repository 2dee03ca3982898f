"""The routes of ``/v1/nodes``: the nodes that sandboxes may run on, and draining one (operators)."""

from typing import Annotated, Final, Literal, Self

from fastapi import APIRouter, Path
from pydantic import BaseModel, Field

from controlplane.api.context import App, Operator
from controlplane.cluster import Drain, NodeState
from controlplane.lifecycle.service.nodes import NodeUse
from controlplane.model.base import Closed
from controlplane.model.spec import MAX_TTL_MS

# Of one answer; the number beside them is of all.
MOST_NODES: Final = 2_000

Name = Annotated[str, Path(pattern=r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?", description="of a node")]

router = APIRouter(tags=["nodes"])


class DrainRequest(Closed):
    """How long what runs on a node may run on."""

    within_ms: int | None = Field(
        default=None,
        ge=0,
        le=MAX_TTL_MS,
        description="after which what is left there ends; null: as long as a sandbox may live; 0: at once",
    )


class DrainBody(BaseModel):
    """Why and until when a node is emptied.

    Attributes:
        until_ms: when what is left there ends (Unix ms).
        by: who has asked for it, or the mark on the node that says so.
        why: the same for people.
    """

    since_ms: int
    until_ms: int
    by: str
    why: str

    @classmethod
    def of(cls, drain: Drain) -> Self:
        """From what the cluster says."""
        return cls(since_ms=drain.since_ms, until_ms=drain.until_ms, by=drain.by, why=drain.why)


class NodeBody(BaseModel):
    """A node that sandboxes may run on.

    Attributes:
        state: draining: it is emptied; not_ready: its kubelet or the cluster says so; cordoned: nothing new comes
            there; ready.
        why: of a state that is not ready.
        max_pods: how many pods of sandboxes it takes at most: its slots, or fewer; null: not known.
        claimed: sandboxes that run for their owners.
        warm: sandboxes of pools that nobody has claimed.
        starting: sandboxes that are not ready yet.
        drain: null: it is not emptied.
    """

    name: str
    state: Literal["ready", "cordoned", "draining", "not_ready"]
    why: str
    max_pods: int | None
    claimed: int
    warm: int
    starting: int
    drain: DrainBody | None

    @classmethod
    def of(cls, use: NodeUse) -> Self:
        """From the lifecycle's view of a node."""
        state, why = _state(use.state)
        drain = None if use.state.drain is None else DrainBody.of(use.state.drain)
        counts = {"claimed": use.claimed, "warm": use.warm, "starting": use.starting}
        return cls(
            name=use.state.name, state=state, why=why, max_pods=use.state.max_pods or None, drain=drain, **counts
        )


class NodeList(BaseModel):
    """The nodes by name, the first two thousand of ``nodes_in_all``."""

    nodes: list[NodeBody]
    nodes_in_all: int


@router.get("/nodes", summary="The nodes that sandboxes may run on (operators)")
async def find(context: App, operator: Operator) -> NodeList:
    """As the control plane that answers sees them."""
    found = await context.service.nodes.all()
    return NodeList(nodes=[NodeBody.of(one) for one in found[:MOST_NODES]], nodes_in_all=len(found))


@router.get("/nodes/{name}", summary="One node (operators)")
async def get(name: Name, context: App, operator: Operator) -> NodeBody:
    """As in the list."""
    return NodeBody.of(await context.service.nodes.one(name))


@router.put("/nodes/{name}/drain", summary="Drain a node (operators)")
async def drain(name: Name, wish: DrainRequest, context: App, operator: Operator) -> NodeBody:
    """Cordons it. Warm sandboxes there end at once, claimed ones at their own end or at the deadline.

    Repeating it sets another deadline. It is asked for when this answers; ``GET`` says how far it has come.
    """
    await context.service.nodes.drain(name, wish.within_ms, operator)
    return NodeBody.of(await context.service.nodes.one(name))


@router.delete("/nodes/{name}/drain", summary="Take the drain of a node back (operators)")
async def undrain(name: Name, context: App, operator: Operator) -> NodeBody:
    """Also in the middle: what has not ended lives on. Repeating it is success. An earlier cordon stays."""
    await context.service.nodes.undrain(name)
    return NodeBody.of(await context.service.nodes.one(name))


def _state(node: NodeState) -> tuple[Literal["ready", "cordoned", "draining", "not_ready"], str]:
    if not node.ready:
        return "not_ready", node.trouble
    if node.drain is not None:
        return "draining", f"it {node.drain.why}"
    return ("cordoned", "it takes no new pods") if node.cordoned else ("ready", "")
