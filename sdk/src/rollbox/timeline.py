"""What has happened to a sandbox, and what to make of a failure. Pure: JSON in, dataclasses out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from rollbox._problem import SandboxError
from rollbox.record import End


@dataclass(frozen=True, slots=True)
class Moment:
    """Something that happened: when (Unix ms, and since the moment before), where the sandbox was then, what it was."""

    at_ms: int
    after_ms: int
    state: str
    word: str
    text: str


@dataclass(frozen=True, slots=True)
class Timeline:
    """The story of one sandbox; kept for 24 hours after its end, if the store lasts.

    Attributes:
        summary: where it stands, or why it ended, in one sentence.
        end: why, when and by whom it ended; its `fault` says whose doing that was.
        advice: what to do about the end.
        retry: "never", "later", "resume" or "new_sandbox"; None while there is no end.
        moments: oldest first; of very many the middle is left out.
        timings_ms: how long each phase of the start took.
        lease: whose client it goes with; None: it outlives its client.
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

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Timeline:
        """Read the wire form; what this version does not know is left out."""
        known = {item.name: body[item.name] for item in fields(cls) if item.name in body}
        known["end"] = End.from_json(known.get("end"))
        moments = known.get("moments", ())
        known["moments"] = tuple(Moment(**{item.name: one[item.name] for item in fields(Moment)}) for one in moments)
        return cls(**known)

    @property
    def mask_sample(self) -> bool:
        """True when it has ended and its end says nothing about the sample that it was for."""
        return self.end is not None and self.end.mask_sample

    def to_json(self) -> dict[str, Any]:
        """Write the wire form again, for `--json` and logs."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class ErrorContext:
    """A failure with all that is on record of its sandbox, to be logged beside the sample.

    Attributes:
        is_infra: neither the caller nor the code in the sandbox is at fault.
        mask_sample: the bit for RL code: leave the sample out.
        timeline: of the sandbox that it is about; None where there is none, or it cannot be had (see `missing`).
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
        """Put a failure and what was found out about it together."""
        names = ("code", "fault", "retry", "is_infra", "mask_sample", "detail", "hint", "request_id", "sandbox_id")
        return cls(**{name: getattr(error, name) for name in names}, timeline=timeline, missing=missing)

    def to_json(self) -> dict[str, Any]:
        """Write it as JSON, for logs."""
        return asdict(self)
