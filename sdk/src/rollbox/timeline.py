"""Timelines of sandboxes, and failures with their context. Pure: JSON in, dataclasses out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from rollbox._problem import SandboxError
from rollbox.record import End, Parent


@dataclass(frozen=True, slots=True)
class Moment:
    """An event: its time (Unix ms, and ms since the event before), the sandbox's state then, its name and its text."""

    at_ms: int
    after_ms: int
    state: str
    word: str
    text: str


@dataclass(frozen=True, slots=True)
class Timeline:
    """The timeline of one sandbox; kept for 24 hours after its end, unless the store is lost.

    Attributes:
        summary: its state, or why it ended, in one sentence.
        end: why and when it ended, and what ended it; its `fault` says whose fault that was.
        advice: what to do about the end; empty where only the summary says it.
        retry: "never", "later", "resume" or "new_sandbox"; None while there is no end.
        moments: oldest first; of very many, the middle is left out.
        timings_ms: how long each phase of the start took.
        lease: the name of the client's lease that keeps it alive; None: it outlives its client.
        parent: the checkpoint that it was started from; None: of no checkpoint.
        requests: what it has set aside of its limits, in words; empty: not told.
        draining_at_ms: when it ends at the latest, since its node is drained (Unix ms); None: it is not.
    """

    id: str
    state: str
    image: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    summary: str = ""
    end: End | None = None
    advice: str = ""
    retry: str | None = None
    moments: tuple[Moment, ...] = ()
    timings_ms: dict[str, float] = field(default_factory=dict)
    expires_at_ms: int = 0
    idle_timeout_ms: int | None = None
    lease: str | None = None
    parent: Parent | None = None
    requests: str = ""
    draining_at_ms: int | None = None

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Timeline:
        """Read the wire form; fields that this version does not know are left out."""
        known = {item.name: body[item.name] for item in fields(cls) if item.name in body}
        known["end"] = End.from_json(known.get("end"))
        known["parent"] = Parent.from_json(known.get("parent"))
        moments = known.get("moments", ())
        known["moments"] = tuple(Moment(**{item.name: one[item.name] for item in fields(Moment)}) for one in moments)
        return cls(**known)

    @property
    def mask_sample(self) -> bool:
        """True when the sandbox has ended and its end says nothing about its sample."""
        return self.end is not None and self.end.mask_sample

    def to_json(self) -> dict[str, Any]:
        """Write the wire form again, for `--json` and logs."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class ErrorContext:
    """A failure with the timeline of its sandbox, to be logged with the sample.

    Attributes:
        is_infra: neither the caller nor the code in the sandbox is at fault.
        mask_sample: for RL code: leave the sample out of the loss.
        timeline: of the error's sandbox; None where there is none, or it could not be fetched (see `missing`).
        missing: why there is no timeline.
    """

    code: str
    fault: str
    retry: str
    is_infra: bool
    mask_sample: bool
    detail: str
    hint: str
    request_id: str | None
    sandbox_id: str | None
    timeline: Timeline | None = None
    missing: str = ""

    @classmethod
    def of(cls, error: SandboxError, timeline: Timeline | None, missing: str) -> ErrorContext:
        """Combine an error with the timeline that was fetched for it."""
        names = ("code", "fault", "retry", "is_infra", "mask_sample", "detail", "hint", "request_id", "sandbox_id")
        return cls(**{name: getattr(error, name) for name in names}, timeline=timeline, missing=missing)

    def to_json(self) -> dict[str, Any]:
        """Write it as JSON, for logs."""
        return asdict(self)
