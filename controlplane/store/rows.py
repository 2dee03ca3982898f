"""A sandbox as Redis keeps it: one JSON text, and beside it what the scripts look at."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from controlplane.errors import TABLE
from controlplane.model import EndCause, Sandbox, SandboxSpec, State

_PLAIN: Final = (
    *("id", "owner", "created_at_ms", "expires_at_ms", "fingerprint", "idempotency_key", "version", "generation"),
    *("ready_at_ms", "address", "kernel", "ports_revision"),
)


def dump(sandbox: Sandbox, *, env: bool = True) -> str:
    """The whole record as JSON; the environment only while it may be needed. Cost: 10 us and the environment."""
    spec = sandbox.spec
    secret = {"env"} if sandbox.end is not None or not env else set()
    return json.dumps(
        {
            **{name: getattr(sandbox, name) for name in _PLAIN},
            "state": sandbox.state,
            "spec": spec.model_dump(mode="json", exclude=secret),
            "end": None if sandbox.end is None else asdict(sandbox.end),
            "timings_ms": dict(sandbox.timings_ms),
            "public_ports": sandbox.public_ports,
        },
        separators=(",", ":"),
    )


def load(text: str | bytes) -> Sandbox:
    """Reads what ``dump`` wrote.

    Raises:
        ValueError: it is not that; the names of the fields are those of another version.
    """
    try:
        return _load(json.loads(text))
    except (KeyError, TypeError) as error:
        raise ValueError(f"not a record of this version: {error}") from error


def _load(fields: Mapping[str, Any]) -> Sandbox:
    end = fields["end"]
    if end is not None and end["cause"] not in TABLE:
        raise ValueError(f"not a cause of this version: {end['cause']!r}")
    return Sandbox(
        **{name: fields[name] for name in _PLAIN if name in fields},
        spec=SandboxSpec.model_validate(fields["spec"]),
        state=State(fields["state"]),
        end=None if end is None else EndCause(**end),
        timings_ms=fields["timings_ms"],
        public_ports=tuple(fields.get("public_ports", ())),
    )


def key_of(owner: str, key: str | None) -> str:
    """How an owner's idempotency key is called; empty for none."""
    return "" if key is None else f"{owner}\n{key}"


def news_of(sandbox: Sandbox, origin: str, now_ms: int) -> str:
    """What other replicas hear; empty when it is nothing to them: they follow routes, lives and ends, not starts."""
    told = sandbox.state is State.RUNNING or sandbox.end is not None
    return json.dumps({"by": origin, "at": now_ms, "sandbox": dump(sandbox, env=False)}) if told else ""


def begin_of(origin: str) -> str:
    """How everything begins that ``origin`` tells: its own news need not be read to be known."""
    return json.dumps({"by": origin})[:-1]


def row(sandbox: Sandbox, now_ms: int, writer: str, origin: str) -> tuple[str | int, ...]:
    """The first arguments of every script that writes a record; ``lua/head.lua`` names them."""
    return (
        *(now_ms, writer, origin, sandbox.id, sandbox.version, sandbox.state, sandbox.owner),
        key_of(sandbox.owner, sandbox.idempotency_key),
        *(sandbox.created_at_ms, sandbox.expires_at_ms, sandbox.start_by_ms),
        0 if sandbox.end is None else sandbox.end.at_ms,
        dump(sandbox),
        news_of(sandbox, origin, now_ms),
    )
