"""Quotas of owners, and checks of a run before it starts (preflight). Pure: JSON in, dataclasses out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Final, Literal, TypedDict, TypeVar

from rollbox._problem import SandboxError
from rollbox.errors import BY_CODE
from rollbox.quantity import Size, parse_cpu, parse_memory
from rollbox.request import count

_T = TypeVar("_T")


class QuotaLimits(TypedDict, total=False):
    """The limits of a quota, as `Client.set_quota` takes them; None removes a limit."""

    sandboxes: int | None
    cpu: float | str | None
    memory: Size | None
    gpu: int | None
    starting: int | None
    commits: Size | None
    egress_connections: int | None
    egress_connections_per_second: int | None
    egress_bytes_per_second: Size | None
    egress_daily_bytes: Size | None


@dataclass(frozen=True, slots=True)
class Place:
    """A create that waits for quota or capacity.

    Attributes:
        position: in the owner's queue, from 1.
        waits_for: the limit that the first in the queue waits for; "total" is that of the installation;
            "capacity_unavailable": no node has room for it.
        why: what the nodes have left, or what the scheduler misses, and its number, when no node has room for it.
        until_ms: when it is refused (Unix ms).
        estimate_ms: how long it will wait if the queue moves as fast as lately; None: not known yet.
    """

    position: int
    idempotency_key: str | None = None
    labels: dict[str, str] = field(default_factory=dict)
    waits_for: str = ""
    since_ms: int = 0
    until_ms: int = 0
    estimate_ms: int | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Quota:
    """Limits and use of one owner at one time. Sizes in bytes, cpu in millicores, both as requested.

    Attributes:
        declared_for: the owner, or "*" where the default quota applies; None: no quota applies.
        limits: by resource (sandboxes, cpu_millicores, memory_bytes, gpu, starting); None: no limit. `commit_bytes` is
            of images that are made of sandboxes (`Client.commits`); None: the installation's limit.
            What begins with `egress_` is of all the owner's sandboxes, at each egress replica: `egress_connections`
            open at once, `egress_connections_per_second`, `egress_bytes_per_second`, and `egress_daily_bytes` since
            midnight UTC.
        used: by resource.
        waiting: creates that wait for quota or capacity, at all control planes.
        max_sandboxes, sandboxes_in_all: limit and number for all owners together; not in the list of all quotas.
        queue: the first hundred waiting creates; not in the list of all quotas.
    """

    owner: str
    declared_for: str | None = None
    limits: dict[str, int | None] = field(default_factory=dict)
    used: dict[str, int] = field(default_factory=dict)
    waiting: int = 0
    max_sandboxes: int | None = None
    sandboxes_in_all: int | None = None
    queue: list[Place] = field(default_factory=list)

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Quota:
        """Read the wire form; fields that this version does not know are left out."""
        return _read(cls, {**body, "queue": [_read(Place, one) for one in body.get("queue", ())]})

    def to_json(self) -> dict[str, Any]:
        """Write the wire form again, for `--json`."""
        return asdict(self)

    def free(self, resource: str) -> int | None:
        """Return how much of a resource is left; None where there is no limit, 0 also where use is above it."""
        limit = self.limits.get(resource)
        return None if limit is None else max(0, limit - self.used.get(resource, 0))


@dataclass(frozen=True, slots=True)
class Need:
    """One limit that applies to a run.

    Attributes:
        resource: of the quota, "total" (all sandboxes of the installation) or "capacity" (room on the nodes).
        needed: by the whole run.
        limit: None: there is none.
        may_run: how many of the run's sandboxes it allows now; None: any number.
        may_run_alone: how many it allows when nothing else runs.
    """

    resource: str
    needed: int = 0
    used: int = 0
    limit: int | None = None
    may_run: int | None = None
    may_run_alone: int | None = None


@dataclass(frozen=True, slots=True)
class Blocker:
    """Why a run cannot have all its sandboxes now: an error code, a sentence, and what to do.

    Attributes:
        for_good: waiting does not help.
    """

    code: str
    detail: str
    hint: str = ""
    for_good: bool = False

    def error(self) -> SandboxError:
        """Return the error that a create would raise."""
        kind = BY_CODE.get(self.code, SandboxError)
        details = {"for_good": str(self.for_good).lower()}
        return kind(self.detail, hint=self.hint or None, details=details)


@dataclass(frozen=True, slots=True)
class NodesToCome:
    """What a node pool may bring for a run.

    Attributes:
        nodes: asked for and not there yet, or still to be asked for.
        sandboxes: how many of the run have room on them.
        within_s: how many seconds a node may take to come.
        why: why none comes at present; empty: they may.
    """

    pool: str
    nodes: int = 0
    sandboxes: int = 0
    within_s: int = 0
    why: str = ""


@dataclass(frozen=True, slots=True)
class Preflight:
    """The result of a preflight check. A snapshot: nothing is reserved.

    Attributes:
        fits: whether all sandboxes of the run can run together now.
        may_have: how many of them can run together now.
        may_have_alone: how many when nothing else runs, and all nodes have come that may.
        warm: how many ready ones pools have for it.
        image: "here" (on the machines), "elsewhere" (in its registry), or "unknown" before it is pulled.
        requests: what each sandbox of the run has set aside of its limits, in words; empty: not told.
        estimate_ms: until `may_have` of them are ready; None: not known yet.
        nodes_may_come: what the installation may add for it, by node pool; empty: nothing, or it is not told.
    """

    fits: bool
    count: int
    may_have: int
    may_have_alone: int = 0
    warm: int = 0
    image: str = "unknown"
    needs: list[Need] = field(default_factory=list)
    blockers: list[Blocker] = field(default_factory=list)
    estimate_ms: int | None = None
    requests: str = ""
    nodes_may_come: list[NodesToCome] = field(default_factory=list)

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Preflight:
        """Read the wire form; fields that this version does not know are left out."""
        parts = {
            "needs": [_read(Need, one) for one in body.get("needs", ())],
            "blockers": [_read(Blocker, one) for one in body.get("blockers", ())],
            "nodes_may_come": [_read(NodesToCome, one) for one in body.get("nodes_may_come", ())],
        }
        return _read(cls, {**body, **parts})

    def to_json(self) -> dict[str, Any]:
        """Write the wire form again, for `--json`."""
        return asdict(self)

    def require(self) -> None:
        """Raise the error of the first blocker (QuotaExceeded, CapacityUnavailable, ...), unless the run fits."""
        if not self.fits and self.blockers:
            raise self.blockers[0].error()

    def __str__(self) -> str:
        """Format as one line for what can run and how soon, one for what each has, and one for each blocker."""
        from rollbox.report.words import duration  # noqa: PLC0415 - for people alone

        soon = "" if self.estimate_ms is None else f", ready in about {duration(self.estimate_ms)}"
        warm = f" ({min(self.warm, self.may_have)} of them are warm)" if self.warm else ""
        alone = "" if self.fits else f"; {self.may_have_alone} when nothing else runs"
        told = [f"{self.count} wanted: {self.may_have} may run together now{warm}{soon}{alone}"]
        told += [f"each has set aside {self.requests}"] if self.requests else []
        return "\n".join(told + [f"{one.code}: {one.detail}" for one in self.blockers])


_SIZES: Final[Mapping[Literal["memory", "commits", "egress_bytes_per_second", "egress_daily_bytes"], str]] = {
    "memory": "memory_bytes",
    "commits": "commit_bytes",
    "egress_bytes_per_second": "egress_bytes_per_second",
    "egress_daily_bytes": "egress_daily_bytes",
}


def limits_body(limits: QuotaLimits) -> dict[str, int | None]:
    """Build the body that changes a quota; InvalidArgument for an invalid limit."""
    body: dict[str, int | None] = {}
    for name in ("sandboxes", "gpu", "starting", "egress_connections", "egress_connections_per_second"):
        if name in limits:
            given = limits[name]
            body[name] = None if given is None else count(name, given)
    if "cpu" in limits:
        body["cpu_millicores"] = None if limits["cpu"] is None else parse_cpu(limits["cpu"])
    for name, field_name in _SIZES.items():
        if name in limits:
            size = limits[name]
            body[field_name] = None if size is None else parse_memory(size)
    return body


def _read(kind: type[_T], body: Mapping[str, Any]) -> _T:
    known = {item.name for item in fields(kind)}  # type: ignore[arg-type]
    return kind(**{name: value for name, value in body.items() if name in known})
