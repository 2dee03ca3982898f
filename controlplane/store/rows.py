"""A sandbox as it is stored in Redis: its record as JSON, and the fields that the scripts use."""

from collections.abc import Mapping
from dataclasses import fields, replace
from operator import attrgetter
from typing import Any, Final

from pydantic_core import from_json, to_json

from controlplane.egress import UNBOUND, load_binding
from controlplane.model import GROUP, EndCause, Sandbox, SandboxSpec, State, load_timeline
from controlplane.model.states import BOUND, claim_fields
from controlplane.store.scripts import Value

# The members of a record that a claim replaces, ``version`` apart; it keeps all others.
_BOUND: Final = (*BOUND, "state", "claimed_at_ms", "claim_id", "abandoned_at_ms", "end")
_OWN: Final = tuple(one.name for one in fields(Sandbox) if one.name not in {"version", *_BOUND})
_read_bound: Final = attrgetter(*_BOUND)
_read_own: Final = attrgetter(*_OWN)
# These are read from JSON by ``_load``, all others are what they are there.
_MADE: Final = {"spec", "state", "end", "public_ports", "timeline", "callers", "egress"}
_PLAIN: Final = tuple(one.name for one in fields(Sandbox) if one.name not in _MADE)


def dump(sandbox: Sandbox) -> str:
    """The whole record as JSON. Cost: 10 us."""
    return _json({"version": sandbox.version, **_own(sandbox), **_bound(sandbox)})


def own(sandbox: Sandbox) -> str:
    """The members of the record that a claim keeps, as a JSON object; the version is neither of these."""
    return _json(_own(sandbox))


def bound(sandbox: Sandbox) -> str:
    """The members of the record that a claim replaces, as a JSON object."""
    return _json(_bound(sandbox))


def _own(sandbox: Sandbox) -> dict[str, Any]:
    return dict(zip(_OWN, _read_own(sandbox), strict=True))


def _bound(sandbox: Sandbox) -> dict[str, Any]:
    return dict(zip(_BOUND, _read_bound(sandbox), strict=True))


def _json(members: Mapping[str, Any]) -> str:
    return to_json(members).decode()


def load(text: str | bytes) -> Sandbox:
    """Reads what ``dump`` wrote.

    Raises:
        ValueError: it is no record, or one of another version.
    """
    return load_fields(from_json(text))


def load_fields(members: Any) -> Sandbox:  # noqa: ANN401 - JSON
    """As ``load``, for parsed JSON: feed messages embed the record.

    Raises:
        ValueError: it is not a record of this version.
    """
    try:
        return _load(members)
    except (KeyError, TypeError) as error:
        raise ValueError(f"not a record of this version: {error}") from error


def _load(members: Mapping[str, Any]) -> Sandbox:
    end = members["end"]
    return Sandbox(
        **{name: members[name] for name in _PLAIN if name in members},
        spec=SandboxSpec.model_validate(members["spec"]),
        state=State(members["state"]),
        end=None if end is None else EndCause.read(end),
        public_ports=tuple(members.get("public_ports", ())),
        timeline=load_timeline(members.get("timeline", ())),
        callers=tuple(members.get("callers", ())),
        egress=load_binding(members["egress"]) if members.get("egress") else UNBOUND,
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


def begin_of(origin: str) -> str:
    """The beginning of every feed message of ``origin``, so that a replica skips its own without parsing them."""
    return to_json({"by": origin}).decode()[:-1]


def row(sandbox: Sandbox, now_ms: int, writer: str, origin: str) -> dict[str, Value]:
    """The arguments of every script that writes a record; ``lua/head.lua`` says what they are.

    Args:
        sandbox: as it is to be stored.
        now_ms: Unix time of the change.
        writer: a unique id of this write, by which its repetition is known.
        origin: the replica that writes, which skips its own messages.
    """
    warm = sandbox.state is State.WARM
    return {
        **_fields(sandbox, now_ms, writer, origin),
        "record": dump(sandbox),
        "message": _changed(origin, now_ms) if sandbox.told else "",
        "template": sandbox.spec.template_hash() if warm else "",
        "ready": (sandbox.ready_at_ms or 0) if warm else 0,
        "own": own(sandbox) if warm else "",
    }


def wish_row(wish: Sandbox, now_ms: int, writer: str, origin: str) -> dict[str, Value]:
    """As ``row``, for a claim: ``record`` is what it replaces in that of the one that it gets.

    The template is the one that is wanted.

    Args:
        wish: the sandbox as it would be created cold.
        now_ms: Unix time of the claim.
        writer: as in ``row``.
        origin: as in ``row``.
    """
    claimed = replace(wish, **claim_fields(wish, now_ms))
    return {
        **_fields(claimed, now_ms, writer, origin),
        "record": bound(claimed),
        "message": _changed(origin, now_ms),
        "template": wish.spec.template_hash(),
        "ready": 0,
        "own": "",
    }


def _changed(origin: str, now_ms: int) -> str:
    """The feed message of a change; the script adds the record as ``sandbox``."""
    return to_json({"by": origin, "at": now_ms}).decode()


def _fields(sandbox: Sandbox, now_ms: int, writer: str, origin: str) -> dict[str, Value]:
    spec = sandbox.spec
    return {
        "now": now_ms,
        "writer": writer,
        "holder": origin,
        "id": sandbox.id,
        "version": sandbox.version,
        "state": sandbox.state,
        "owner": sandbox.owner,
        "key": key_of(sandbox.owner, sandbox.idempotency_key),
        "created": sandbox.created_at_ms,
        "expires": sandbox.expires_at_ms,
        "deadline": sandbox.start_by_ms,
        "ending": 0 if sandbox.end is None else sandbox.end.at_ms,
        "cpu": spec.cpu_millicores.request,
        "memory": spec.memory_bytes.request,
        "gpu": spec.gpu,
        "group": group_of(sandbox),
        "call": call_of(sandbox),
    }
