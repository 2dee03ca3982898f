"""Serializes a sandbox's record.

The cluster keeps it on the container or pod, so that a restarted control plane can adopt what still runs; a journal
keeps it once the sandbox has ended. Environment variables are left out: they may hold secrets, which everything that
may list containers could read.
"""

import json
from collections.abc import Iterable
from dataclasses import asdict, replace
from typing import Any, Final

from pydantic import ValidationError
from pydantic_core import to_json

from controlplane.egress import load_binding
from controlplane.model.sandbox import EndCause, Moment, Sandbox, State
from controlplane.model.spec import SandboxSpec

_FIELDS: Final = ("id", "owner", "created_at_ms", "expires_at_ms", "fingerprint", "idempotency_key", "generation")
# Optional fields, written only when set: the record of a sandbox that never belonged to a pool has none of them.
_LATER: Final = (
    "pool",
    "interpreter",
    "claimed_at_ms",
    "claim_id",
    "cold_reason",
    "image_digest",
    "image_ran",
    "image_stale",
    "image_pulled",
    "image_pulled_why",
    "settings_digest",
)


def dump_record(sandbox: Sandbox) -> str:
    """The fields that are known before the start, or after a claim, as JSON; without environment variables."""
    later = {name: value for name in _LATER if (value := getattr(sandbox, name))}
    if sandbox.egress.bound:
        later["egress"] = asdict(sandbox.egress)
    fields = {name: getattr(sandbox, name) for name in _FIELDS}
    spec = sandbox.spec.model_dump_json(exclude={"env"})
    return f'{to_json({**fields, **later}).decode()[:-1]},"spec":{spec}}}'


def load_record(text: str) -> Sandbox | None:
    """Reads what ``dump_record`` wrote; None when it is not such a record (another version, or damaged)."""
    try:
        fields = json.loads(text)
        spec = SandboxSpec.model_validate(fields.pop("spec"))
        later = {name: fields[name] for name in _LATER if name in fields}
        if "egress" in fields:
            later["egress"] = load_binding(fields["egress"])
        return Sandbox(spec=spec, state=State.STARTING, **{name: fields[name] for name in _FIELDS}, **later)
    except (ValueError, KeyError, TypeError, AttributeError, ValidationError):
        return None


def dump_tombstone(sandbox: Sandbox) -> dict[str, Any]:
    """The tombstone of an ended sandbox, ready for JSON; without environment variables.

    Raises:
        ValueError: the sandbox has not ended.
    """
    if sandbox.end is None:
        raise ValueError(f"{sandbox.id} has not ended")
    return {
        "record": dump_record(sandbox),
        "end": asdict(sandbox.end),
        "ready_at_ms": sandbox.ready_at_ms,
        "kernel": sandbox.kernel,
        "timings_ms": dict(sandbox.timings_ms),
        "timeline": sandbox.timeline,
    }


def load_timeline(moments: Iterable[Any]) -> tuple[Moment, ...]:
    """Reads a timeline from JSON.

    Raises:
        ValueError, TypeError: it is malformed.
    """
    return tuple(Moment(int(at_ms), State(state), str(word)) for at_ms, state, word in moments)


def load_tombstone(fields: Any) -> Sandbox | None:  # noqa: ANN401 - JSON
    """Reads what ``dump_tombstone`` made; None when it is no such tombstone (another version, or damaged)."""
    try:
        sandbox, end = load_record(fields["record"]), EndCause.read(fields["end"])
        if sandbox is None:
            return None
        return replace(
            sandbox,
            state=State.ENDED,
            end=end,
            ready_at_ms=fields["ready_at_ms"],
            kernel=fields["kernel"],
            timings_ms=fields["timings_ms"],
            timeline=load_timeline(fields.get("timeline", ())),
        )
    except (ValueError, KeyError, TypeError):
        return None
