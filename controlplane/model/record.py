"""A sandbox's record as text: for a cluster to carry beside it, so that a restart can adopt what still runs, and for
a journal to keep once it has ended.

The environment stays out of it: it may hold secrets, and whoever may list containers could read them.
"""

import json
from collections.abc import Iterable
from dataclasses import asdict, replace
from typing import Any, Final

from pydantic import ValidationError
from pydantic_core import to_json

from controlplane.errors import TABLE
from controlplane.model.sandbox import EndCause, Moment, Sandbox, State
from controlplane.model.spec import SandboxSpec

_FIELDS: Final = ("id", "owner", "created_at_ms", "expires_at_ms", "fingerprint", "idempotency_key", "generation")
# Told only where they say something: a record of a sandbox that no pool has to do with reads as it always did.
_LATER: Final = ("pool", "claimed_at_ms", "claim_id", "cold_reason")


def dump_record(sandbox: Sandbox) -> str:
    """What is known before the start, or once it is claimed, as JSON; without the environment."""
    later = {name: value for name in _LATER if (value := getattr(sandbox, name))}
    fields = {name: getattr(sandbox, name) for name in _FIELDS}
    spec = sandbox.spec.model_dump_json(exclude={"env"})
    return f'{to_json({**fields, **later}).decode()[:-1]},"spec":{spec}}}'


def load_record(text: str) -> Sandbox | None:
    """Reads what ``dump_record`` wrote; None when it is not such a record (another version, or damaged)."""
    try:
        fields = json.loads(text)
        spec = SandboxSpec.model_validate(fields.pop("spec"))
        later = {name: fields[name] for name in _LATER if name in fields}
        return Sandbox(spec=spec, state=State.STARTING, **{name: fields[name] for name in _FIELDS}, **later)
    except (ValueError, KeyError, TypeError, AttributeError, ValidationError):
        return None


def dump_tombstone(sandbox: Sandbox) -> dict[str, Any]:
    """What stays of an ended sandbox, ready for JSON; without the environment."""
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
    """Reads a timeline out of JSON.

    Raises:
        ValueError, TypeError: it is none.
    """
    return tuple(Moment(int(at_ms), State(state), str(word)) for at_ms, state, word in moments)


def load_tombstone(fields: Any) -> Sandbox | None:  # noqa: ANN401 - JSON
    """Reads what ``dump_tombstone`` made; None when it is not that (another version, or damaged)."""
    try:
        sandbox, end = load_record(fields["record"]), EndCause(**fields["end"])
        if sandbox is None or end.cause not in TABLE:
            return None
        return replace(
            sandbox,
            state=State.ENDED,
            end=replace(end, at_ms=int(end.at_ms)),
            ready_at_ms=fields["ready_at_ms"],
            kernel=fields["kernel"],
            timings_ms=fields["timings_ms"],
            timeline=load_timeline(fields.get("timeline", ())),
        )
    except (ValueError, KeyError, TypeError):
        return None
