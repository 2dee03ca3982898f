"""The bodies of the HTTP API; unknown fields are refused, and field names include their units."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from fastapi import Query
from pydantic import BaseModel, ConfigDict, Field

from controlplane.api import said
from controlplane.cluster import Description
from controlplane.errors import Code, Fault
from controlplane.images import Checkpoint, parse
from controlplane.lifecycle.tokens import Token
from controlplane.model import UP, EndCause, Lease, Mount, Pulled, Range, Sandbox, State
from controlplane.model.base import Closed
from controlplane.model.spec import MAX_TTL_MS


class EndBody(BaseModel):
    """Why, when and by whom a sandbox ended.

    Attributes:
        mask_sample: whether it says nothing about the sample that the sandbox was for.
    """

    cause: Code
    fault: Fault
    mask_sample: bool
    detail: str
    at_ms: int
    by: str

    @classmethod
    def of(cls, end: EndCause) -> Self:
        """From the record's end."""
        words = {"cause": end.cause, "detail": end.detail, "at_ms": end.at_ms, "by": end.by}
        return cls(fault=end.fault, mask_sample=end.mask_sample, **words)


class ParentBody(BaseModel):
    """The checkpoint that a sandbox was started from.

    Attributes:
        sandbox: of which it was made.
        checkpoint: its id.
        depth: how many checkpoints there are between the sandbox and an image that is none; 1: this one alone.
    """

    sandbox: str
    checkpoint: str
    depth: int

    @classmethod
    def of(cls, sandbox: Sandbox, place: Description) -> Self | None:
        """From the image that a record names; None: it is no checkpoint."""
        one = Checkpoint.of(place.commits, parse(sandbox.spec.image))
        return None if one is None else cls(sandbox=one.sandbox_id, checkpoint=one.id, depth=one.depth)


class SandboxBody(BaseModel):
    """One sandbox as callers see it.

    Attributes:
        image: as the create named it.
        image_digest: what it was started from; empty: not resolved, its node understood the name by itself.
        image_ran: what its node runs, where that is another digest: the copy in the private registry.
        image_stale: whether the digest is what the name meant last, since its registry did not answer.
        image_pulled: chosen: whole before it starts (full), or file by file while it runs (lazy); empty: not yet.
        image_pulled_why: why whole, where the nodes could have pulled it lazily; lazily: whose recorded copy it is.
        mounts: what it has besides its image, by path.
        claimed_at_ms: when its owner got it from a pool; null: it was started for its owner.
        egress: the name of its network policy.
        source: ready from a pool (warm), or started for its owner (cold).
        cold_reason: why cold, where pools of its image exist.
        parent: the checkpoint that it was started from; null: it was started from another image.
        draining_at_ms: when it ends at the latest, since its node is drained; null: its node is not.
        silent_since_ms: since when it has answered no health probe; null: it does, or was not asked.
    """

    id: str
    owner: str
    image: str
    image_digest: str
    image_ran: str
    image_stale: bool
    image_pulled: Pulled
    image_pulled_why: str
    state: State
    labels: dict[str, str]
    cpu_millicores: Range
    memory_bytes: Range
    pids_limit: int | None
    disk_bytes: int | None
    gpu: int
    node_selector: dict[str, str]
    mounts: dict[str, Mount]
    created_at_ms: int
    claimed_at_ms: int | None
    ready_at_ms: int | None
    expires_at_ms: int
    idle_timeout_ms: int | None
    lease: Lease | None
    isolation: str
    kernel: str
    end: EndBody | None
    timings_ms: dict[str, int]
    generation: int
    public_ports: list[int]
    egress: str
    source: Literal["warm", "cold"]
    cold_reason: str
    parent: ParentBody | None
    draining_at_ms: int | None
    silent_since_ms: int | None = None

    @classmethod
    def of(cls, sandbox: Sandbox, place: Description, silent: Mapping[str, int] | None = None) -> Self:
        """From the record, what is true of all sandboxes there, and since when which of them are silent (Unix ms)."""
        since_ms = (silent or {}).get(sandbox.id) if sandbox.state in UP else None
        return cls(**cls._fields(sandbox, place), silent_since_ms=since_ms)

    @staticmethod
    def _fields(sandbox: Sandbox, place: Description) -> dict[str, Any]:
        spec = sandbox.spec
        return {
            "id": sandbox.id,
            "owner": sandbox.owner,
            "image": spec.image,
            "image_digest": sandbox.image_digest,
            "image_ran": sandbox.image_ran,
            "image_stale": sandbox.image_stale,
            "image_pulled": sandbox.image_pulled,
            "image_pulled_why": sandbox.image_pulled_why,
            "state": sandbox.state,
            "labels": spec.labels,
            "cpu_millicores": spec.cpu_millicores,
            "memory_bytes": spec.memory_bytes,
            "pids_limit": place.pids_limit if spec.pids_limit is None else spec.pids_limit,
            "disk_bytes": spec.disk_bytes,
            "gpu": spec.gpu,
            "node_selector": spec.node_selector,
            "mounts": spec.mounts,
            "created_at_ms": sandbox.created_at_ms,
            "claimed_at_ms": sandbox.claimed_at_ms,
            "ready_at_ms": sandbox.ready_at_ms,
            "expires_at_ms": sandbox.expires_at_ms,
            "idle_timeout_ms": spec.idle_timeout_ms,
            "lease": spec.lease,
            "isolation": place.isolation,
            "kernel": sandbox.kernel,
            "end": None if sandbox.end is None else EndBody.of(sandbox.end),
            "timings_ms": dict(sandbox.timings_ms),
            "generation": sandbox.generation,
            "public_ports": list(sandbox.public_ports),
            "egress": sandbox.egress.name,
            "source": "warm" if sandbox.warm else "cold",
            "cold_reason": sandbox.cold_reason,
            "parent": ParentBody.of(sandbox, place),
            "draining_at_ms": sandbox.drained_by_ms,
        }


class UsableSandboxBody(SandboxBody):
    """A running sandbox with the token that it is used with."""

    token: str
    token_expires_at_ms: int

    @classmethod
    def with_token(cls, sandbox: Sandbox, place: Description, token: Token) -> Self:
        """From the record and a fresh token."""
        said.concerns(sandbox.id)
        fields = cls._fields(sandbox, place)
        return cls(**fields, token=token.text, token_expires_at_ms=token.expires_at_ms)


class SandboxList(BaseModel):
    """Sandboxes, oldest first."""

    sandboxes: list[SandboxBody]


# Longest time that a delete waits for the node. The end itself is recorded at once, so a longer wait has no use.
MOST_WAIT_MS = 600_000
WaitMs = Annotated[
    int,
    Query(
        ge=0,
        le=MOST_WAIT_MS,
        description="how long to wait for the cluster's confirmation that nothing of it runs any more; 0: not at all",
    ),
]


class FailedDelete(BaseModel):
    """A sandbox whose end is on record, and not confirmed by the cluster for as long as the call has waited."""

    id: str
    code: Code
    detail: str


class DeletedBody(BaseModel):
    """What a delete of many came to."""

    deleted: list[str]
    failed: list[FailedDelete]


class ExtendRequest(Closed):
    """How long a sandbox shall live at least, from now."""

    ttl_ms: int = Field(ge=1_000, le=MAX_TTL_MS)


class UnboundRequest(Closed):
    """Why a gateway could not bind a sandbox's late settings, as the sidecar or the connection to it said."""

    code: Code
    detail: str = Field(max_length=4096)
    details: dict[str, str] = Field(default_factory=dict, max_length=32)


class PortRequest(Closed):
    """Which callers reach a port: those with the sandbox's token, or all."""

    visibility: Literal["private", "public"] = "private"


class PortBody(BaseModel):
    """A port of a sandbox as callers reach it.

    Attributes:
        url: relative to the address of the gateway.
        host_url: the same by a host name of its own, with the scheme and port of the gateway; None: not offered here.
    """

    port: int
    visibility: Literal["private", "public"]
    url: str
    host_url: str | None


class EngineBody(BaseModel):
    """The engine behind this installation."""

    name: str
    version: str


class InfoBody(BaseModel):
    """What this installation is and offers."""

    version: str
    backend: str
    engine: EngineBody
    isolation: str
    isolation_detail: str
    network: str
    limits: dict[str, int]


class PushFailure(BaseModel):
    """Why a sandbox will never be ready."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    code: Code
    detail: str = Field(default="", max_length=4096)


class PushRequest(BaseModel):
    """A readiness push. Unknown fields are ignored, since a sidecar may be newer than the control plane."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    sandbox_id: Annotated[str, Field(min_length=1, max_length=63)]
    address: str = Field(default="", max_length=512)
    kernel: str = Field(default="", max_length=1024)
    boot_us: dict[str, int] = Field(default_factory=dict, max_length=32)
    failure: PushFailure | None = None
