"""What an owner may use, and what becomes of a run before it begins. Pure: JSON in, dataclasses out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, TypedDict, TypeVar

from rollbox._problem import SandboxError
from rollbox.errors import BY_CODE
from rollbox.quantity import Size, parse_cpu, parse_memory
from rollbox.request import count

_T = TypeVar("_T")


class QuotaLimits(TypedDict, total=False):
    """QuotaLimits of a quota, as `Client.set_quota` takes them; None takes a limit away."""

    sandboxes: int | None
    cpu: float | str | None
    memory: Size | None
    gpu: int | None
    starting: int | None


@dataclass(frozen=True, slots=True)
class Place:
    """A create that waits for room.

    Attributes:
        position: among the owner's at the control plane that answered, from 1.
        waits_for: the limit that the first one waits for; "total" is the installation's; "capacity_unavailable": no
            node takes it.
        why: in the scheduler's words, where no node takes it.
        until_ms: when it is refused (Unix ms).
        estimate_ms: how long it will wait if the line moves on as it did last; None: not known yet.
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
    """What an owner may use at one time, and what he uses. Sizes in bytes, cpu in millicores, both as requested.

    Attributes:
        declared_for: the owner, or "*" where everybody's quota holds for him; None: there is none.
        limits: by resource (sandboxes, cpu_millicores, memory_bytes, gpu, starting); None: no limit.
        used: by resource.
        waiting: creates that wait for room, at the control plane that answered.
        max_sandboxes, sandboxes_in_all: of all owners together; only of one's own quota.
        queue: the first hundred of those that wait; only of one's own quota.
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
        """Tell how much of a resource is left; None where there is no limit, 0 also where use is above it."""
        limit = self.limits.get(resource)
        return None if limit is None else max(0, limit - self.used.get(resource, 0))


@dataclass(frozen=True, slots=True)
class Need:
    """One bound that a run meets.

    Attributes:
        resource: of the quota, "total" (all sandboxes of the installation) or "capacity" (what the nodes hold).
        needed: by the whole run.
        limit: None: there is none.
        may_run: how many of the run's sandboxes it lets run now; None: any number.
        may_run_alone: how many when nothing else runs.
    """

    resource: str
    needed: int = 0
    used: int = 0
    limit: int | None = None
    may_run: int | None = None
    may_run_alone: int | None = None


@dataclass(frozen=True, slots=True)
class Blocker:
    """Why a run cannot have all its sandboxes now: a code as of errors, a sentence, what to do.

    Attributes:
        for_good: waiting does not help.
    """

    code: str
    detail: str
    hint: str = ""
    for_good: bool = False

    def error(self) -> SandboxError:
        """Make the error that a create would have met."""
        kind = BY_CODE.get(self.code, SandboxError)
        details = {"for_good": str(self.for_good).lower()}
        return kind(self.detail, hint=self.hint or None, details=details)


@dataclass(frozen=True, slots=True)
class Preflight:
    """What becomes of a run. True of its moment: nothing is set aside.

    Attributes:
        fits: all of it can run together now.
        may_have: so many of it can run together now.
        may_have_alone: so many when nothing else runs.
        warm: ready in pools for it.
        image: "here" (on the machines), "elsewhere" (in its registry), or "unknown" before it is pulled.
        estimate_ms: until those that may be had are ready; None: not known yet.
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

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Preflight:
        """Read the wire form; fields that this version does not know are left out."""
        parts = {
            "needs": [_read(Need, one) for one in body.get("needs", ())],
            "blockers": [_read(Blocker, one) for one in body.get("blockers", ())],
        }
        return _read(cls, {**body, **parts})

    def to_json(self) -> dict[str, Any]:
        """Write the wire form again, for `--json`."""
        return asdict(self)

    def require(self) -> None:
        """Raise what is in the way, the first of it (as QuotaExceeded, CapacityUnavailable, ...), unless it fits."""
        if not self.fits and self.blockers:
            raise self.blockers[0].error()

    def __str__(self) -> str:
        """Say it in one sentence for each thing: what may be had, how soon, and what is in the way."""
        soon = "" if self.estimate_ms is None else f", ready in about {self.estimate_ms / 1000:.1f} s"
        warm = f" ({min(self.warm, self.may_have)} of them are warm)" if self.warm else ""
        alone = "" if self.fits else f"; {self.may_have_alone} when nothing else runs"
        told = [f"{self.count} wanted: {self.may_have} may run together now{warm}{soon}{alone}"]
        return "\n".join(told + [f"{one.code}: {one.detail}" for one in self.blockers])


def limits_body(limits: QuotaLimits) -> dict[str, int | None]:
    """Build the body of a change of a quota; InvalidArgument for a limit that makes no sense."""
    body: dict[str, int | None] = {}
    for name in ("sandboxes", "gpu", "starting"):
        if name in limits:
            given = limits[name]
            body[name] = None if given is None else count(name, given)
    if "cpu" in limits:
        body["cpu_millicores"] = None if limits["cpu"] is None else parse_cpu(limits["cpu"])
    if "memory" in limits:
        body["memory_bytes"] = None if limits["memory"] is None else parse_memory(limits["memory"])
    return body


def _read(kind: type[_T], body: Mapping[str, Any]) -> _T:
    known = {item.name for item in fields(kind)}  # type: ignore[arg-type]
    return kind(**{name: value for name, value in body.items() if name in known})
