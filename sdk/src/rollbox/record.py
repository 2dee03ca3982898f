"""Sandboxes as the control plane records them. Pure: JSON in, dataclasses out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, TypeAlias

from rollbox.quantity import Range

_UNKNOWN = Range(0, 0)


@dataclass(frozen=True, slots=True)
class End:
    """Why a sandbox ended: the code of the cause, whose fault it was, one sentence, when, and what ended it.

    Attributes:
        mask_sample: for RL code: True when the end says nothing about the sample, which is left out of the loss.
    """

    cause: str
    fault: str
    detail: str
    at_ms: int
    by: str
    mask_sample: bool = True

    @classmethod
    def from_json(cls, body: Mapping[str, Any] | None) -> End | None:
        """Read the wire form; None for no end."""
        return None if not body else cls(**{item.name: body[item.name] for item in fields(cls)})


@dataclass(frozen=True, slots=True)
class Parent:
    """The checkpoint that a sandbox was started from.

    Attributes:
        sandbox: id of the one that it was made of.
        checkpoint: its id.
        depth: how many checkpoints there are between the sandbox and an image that is none; 1: this one alone.
    """

    sandbox: str
    checkpoint: str
    depth: int

    @classmethod
    def from_json(cls, body: Mapping[str, Any] | None) -> Parent | None:
        """Read the wire form; None for none."""
        return None if not body else cls(**{item.name: body[item.name] for item in fields(cls)})


@dataclass(frozen=True, slots=True)
class SandboxRecord:
    """The control plane's record of one sandbox; kept for 24 hours after its end, unless the store is lost.

    Times are Unix milliseconds, sizes bytes, cpu millicores. `timings_ms` says how long each phase of the start took;
    `source` is "warm" for one that was claimed from a pool (at `claimed_at_ms`); `cold_reason` says why not, if its
    image has pools.
    `image` is the name that was given, `image_digest` what it was resolved to; empty if it was not.
    `image_ran` is the digest of the copy that runs, where there is a private registry; `image_stale` says that the
    image's own registry did not answer, so that the digest is what the name meant when it was copied.
    `image_pulled` says how its node was to get the image: "full" before it starts, "lazy" while it runs; "": not known.
    `image_pulled_why` says why "full", where the nodes could have pulled it lazily, or whose recorded copy it is.
    `egress` is the name of its network policy (`Sandbox.egress`).
    `draining_at_ms` says when it ends at the latest, since its node is drained; None: it is not.
    `silent_since_ms` says since when it has answered no health probe of its cluster; None: it does, or was not asked.
    `mounts` says what it has besides its image, by path, as on the wire.
    `parent` says which checkpoint it was started from, and of which sandbox that was made; None: of no checkpoint.
    """

    id: str
    state: str
    image: str
    owner: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    cpu_millicores: Range = _UNKNOWN
    memory_bytes: Range = _UNKNOWN
    pids_limit: int | None = None
    disk_bytes: int | None = None
    gpu: int = 0
    node_selector: dict[str, str] = field(default_factory=dict)
    mounts: dict[str, dict[str, Any]] = field(default_factory=dict)
    created_at_ms: int = 0
    claimed_at_ms: int | None = None
    ready_at_ms: int | None = None
    expires_at_ms: int = 0
    idle_timeout_ms: int | None = None
    lease: dict[str, Any] | None = None
    isolation: str = ""
    kernel: str = ""
    end: End | None = None
    timings_ms: dict[str, float] = field(default_factory=dict)
    generation: int = 0
    public_ports: list[int] = field(default_factory=list)
    egress: str = ""
    source: str = ""
    cold_reason: str = ""
    image_digest: str = ""
    image_ran: str = ""
    image_stale: bool = False
    image_pulled: str = ""
    image_pulled_why: str = ""
    parent: Parent | None = None
    draining_at_ms: int | None = None
    silent_since_ms: int | None = None

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> SandboxRecord:
        """Read the wire form. Fields that this version does not know are left out: the contract only adds fields."""
        known = {item.name: body[item.name] for item in fields(cls) if item.name in body}
        for name in ("cpu_millicores", "memory_bytes"):
            if known.get(name):
                known[name] = Range(known[name]["request"], known[name]["limit"])
        known["end"] = End.from_json(known.get("end"))
        known["parent"] = Parent.from_json(known.get("parent"))
        return cls(**known)

    @property
    def mask_sample(self) -> bool:
        """True when the sandbox has ended and its end says nothing about its sample."""
        return self.end is not None and self.end.mask_sample

    def to_json(self) -> dict[str, Any]:
        """Write the wire form again, for `--json`."""
        body: dict[str, Any] = {item.name: getattr(self, item.name) for item in fields(self)}
        for name in ("cpu_millicores", "memory_bytes"):
            body[name] = body[name]._asdict()
        body["end"] = asdict(self.end) if self.end else None
        body["parent"] = asdict(self.parent) if self.parent else None
        return body


SandboxList: TypeAlias = list[SandboxRecord]
"""What `Sandbox.list()` returns."""


@dataclass(frozen=True, slots=True)
class DeleteReport:
    """What a delete of several sandboxes did.

    Attributes:
        deleted: ids whose end is on record now, or was already; their quota is free.
        failed: id -> why it was not deleted, or its end not confirmed in time.
    """

    deleted: list[str]
    failed: dict[str, Exception]

    def to_json(self) -> dict[str, Any]:
        """Write the wire form, for `--json`."""
        failed = [
            {"id": name, "code": getattr(error, "code", "internal"), "detail": getattr(error, "detail", str(error))}
            for name, error in self.failed.items()
        ]
        return {"deleted": self.deleted, "failed": failed}
