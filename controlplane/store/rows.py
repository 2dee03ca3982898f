"""A sandbox as it is stored in Redis: its record as JSON, and the fields that the scripts use."""

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

from pydantic_core import from_json, to_json

from controlplane.errors import TABLE
from controlplane.model import GROUP, UP, EndCause, Sandbox, SandboxSpec, State, load_timeline

# The members that a sandbox keeps when it is claimed, and those that the claim replaces; ``version`` precedes both.
_OWN: Final = (
    *("id", "created_at_ms", "generation", "ready_at_ms", "address", "kernel", "ports_revision", "pool", "cold_reason"),
)
_BROUGHT: Final = (
    *("owner", "expires_at_ms", "fingerprint", "idempotency_key", "claimed_at_ms", "claim_id", "abandoned_at_ms"),
    "settings_digest",
)
_PLAIN: Final = ("version", *_OWN, *_BROUGHT)


def dump(sandbox: Sandbox, *, env: bool = True) -> str:
    """The whole record as JSON, without the environment once it has an end. Cost: 10 us, and the environment's size."""
    return f'{{"version":{sandbox.version},{own(sandbox)},{brought(sandbox, env=env)}}}'


def own(sandbox: Sandbox) -> str:
    """The members of the record that a claim keeps."""
    fields = {name: getattr(sandbox, name) for name in _OWN}
    more = {"public_ports": sandbox.public_ports, "timeline": sandbox.timeline}
    return _members({**fields, "timings_ms": dict(sandbox.timings_ms), **more})


def brought(sandbox: Sandbox, *, env: bool = True) -> str:
    """The members of the record that a claim replaces."""
    secret = {"env"} if sandbox.end is not None or not env else set()
    fields = {name: getattr(sandbox, name) for name in _BROUGHT}
    spec = sandbox.spec.model_dump_json(exclude=secret)
    more = {"callers": sandbox.callers, "state": sandbox.state, "end": sandbox.end}
    return f'{_members({**fields, **more})},"spec":{spec}'


def _members(fields: Mapping[str, Any]) -> str:
    return to_json(fields).decode()[1:-1]


def load(text: str | bytes) -> Sandbox:
    """Reads what ``dump`` wrote.

    Raises:
        ValueError: it is no record, or one of another version.
    """
    return load_fields(from_json(text))


def load_fields(fields: Any) -> Sandbox:  # noqa: ANN401 - JSON
    """As ``load``, for parsed JSON: feed messages embed the record."""
    try:
        return _load(fields)
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
        timeline=load_timeline(fields.get("timeline", ())),
        callers=tuple(fields.get("callers", ())),
    )


def key_of(owner: str, key: str | None) -> str:
    """The name of an owner's idempotency key in Redis; empty for none."""
    return "" if key is None else f"{owner}\n{key}"


def call_of(sandbox: Sandbox) -> str:
    """The id of the call for which a sandbox is admitted; empty for none."""
    return sandbox.callers[0].partition("/")[0] if sandbox.callers else ""


def group_of(sandbox: Sandbox) -> str:
    """The name of its group; empty for none."""
    return sandbox.spec.labels.get(GROUP, "")


def news_of(sandbox: Sandbox, record: str, origin: str, now_ms: int) -> str:
    """The feed message of a change; empty for one during a start: other replicas follow what is up or has an end."""
    if sandbox.state not in UP and sandbox.end is None:
        return ""
    told = dump(sandbox, env=False) if sandbox.spec.env else record
    return f"{head_of(origin, now_ms)}{told}}}"


def head_of(origin: str, now_ms: int) -> str:
    """The part of a feed message before the record; a brace follows the record."""
    return f'{begin_of(origin)}, "at": {now_ms}, "sandbox": '


@lru_cache(maxsize=4)
def begin_of(origin: str) -> str:
    """The beginning of every feed message of ``origin``, so that a replica skips its own without parsing them."""
    return json.dumps({"by": origin})[:-1]


def row(sandbox: Sandbox, now_ms: int, writer: str, origin: str) -> tuple[str | int, ...]:
    """The first arguments of every script that writes a record; ``lua/head.lua`` names them."""
    record = dump(sandbox)
    return (
        *_who(sandbox, now_ms, writer, origin),
        record,
        news_of(sandbox, record, origin, now_ms),
        # Of a warm one: its template, from when on it can be claimed, and the members that a claim keeps.
        *(
            (sandbox.spec.template_hash(), sandbox.ready_at_ms or 0, own(sandbox))
            if sandbox.state is State.WARM
            else ("", 0, "")
        ),
        group_of(sandbox),
        call_of(sandbox),
    )


def wish_row(wish: Sandbox, now_ms: int, writer: str, origin: str) -> tuple[str | int, ...]:
    """As ``row``, for a claim: instead of record and message it has the members that a claim adds to them.

    The template is the one that is wanted.
    """
    bound = replace(wish, state=State.RUNNING, claimed_at_ms=now_ms, claim_id=wish.id)
    members = brought(bound)
    return (
        *_who(bound, now_ms, writer, origin),
        members,
        brought(bound, env=False) if wish.spec.env else members,
        *(wish.spec.template_hash(), 0, head_of(origin, now_ms)),
        group_of(wish),
        call_of(wish),
    )


def _who(sandbox: Sandbox, now_ms: int, writer: str, origin: str) -> tuple[str | int, ...]:
    spec = sandbox.spec
    return (
        *(now_ms, writer, origin, sandbox.id, sandbox.version, sandbox.state, sandbox.owner),
        key_of(sandbox.owner, sandbox.idempotency_key),
        *(sandbox.created_at_ms, sandbox.expires_at_ms, sandbox.start_by_ms),
        0 if sandbox.end is None else sandbox.end.at_ms,
        *(spec.cpu_millicores.request, spec.memory_bytes.request, spec.gpu),
    )
