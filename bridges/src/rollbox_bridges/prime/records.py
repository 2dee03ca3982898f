"""Records of sandboxes in Prime's form, lists of them, and their pages. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from rollbox import SandboxRecord
from rollbox_bridges.prime import labels
from rollbox_bridges.prime.words import Refusal, Standing, standing

_GIB: Final = 2**30
_MINUTE_MS: Final = 60_000
_MOST_PAGE: Final = 1000
_ACTIVE: Final = frozenset({"PENDING", "PROVISIONING", "RUNNING", "PAUSED"})
_STATUSES: Final = _ACTIVE | {"ERROR", "TERMINATED", "TIMEOUT"}
_KNOWN: Final = frozenset({"page", "per_page", "team_id", "user_id", "status", "labels", "is_active"})


class Wanted(NamedTuple):
    """What a list is asked for.

    Attributes:
        labels: as rollbox has them.
        user: whose sandboxes; "": of everybody.
        status: "": any.
        active: only those that have not ended.
    """

    labels: Mapping[str, str]
    user: str = ""
    status: str = ""
    active: bool = False
    page: int = 1
    per_page: int = 50


def told(record: SandboxRecord) -> dict[str, Any]:
    """One sandbox. Variables and secrets are not told: the platform does not keep them."""
    now = standing_of(record)
    life_ms = record.expires_at_ms - (record.claimed_at_ms or record.created_at_ms)
    return {
        "id": record.id,
        "name": record.labels.get(labels.NAME, record.id),
        "dockerImage": record.labels.get(labels.IMAGE, record.image),
        "cpuCores": record.cpu_millicores.limit / 1000,
        "memoryGB": record.memory_bytes.limit / _GIB,
        "diskSizeGB": (record.disk_bytes or 0) / _GIB,
        "diskMountPath": "/",
        "gpuCount": record.gpu,
        "gpuType": record.labels.get(labels.GPU_TYPE),
        "vm": is_vm(record),
        # Of other policies the record has the name alone: `egress-policy` tells their lists.
        "networkAllowlist": [] if record.egress == "offline" else None,
        "status": now.status,
        "timeoutMinutes": max(0, round(life_ms / _MINUTE_MS)),
        "idleTimeoutMinutes": None if not record.idle_timeout_ms else round(record.idle_timeout_ms / _MINUTE_MS),
        "terminationReason": None if record.end is None else record.end.cause,
        "labels": labels.labels_of(record.labels),
        "createdAt": time_of(record.created_at_ms),
        "updatedAt": time_of(_updated_ms(record)),
        "startedAt": None if not record.ready_at_ms else time_of(record.ready_at_ms),
        "terminatedAt": None if record.end is None else time_of(record.end.at_ms),
        "errorType": now.error_type,
        "errorMessage": now.error_message,
        "userId": record.owner or None,
        "teamId": record.labels.get(labels.TEAM),
        "region": record.labels.get(labels.REGION),
    }


def standing_of(record: SandboxRecord) -> Standing:
    """Where a sandbox is in its life."""
    return standing(record.state, record.end)


def is_vm(record: SandboxRecord) -> bool:
    """Whether a client has asked for the newer generation: a client that speaks both chooses by this."""
    return record.labels.get(labels.VM) == "true"


def wanted_of(query: Mapping[str, str], given_labels: Sequence[str]) -> Wanted:
    """Read what a list is asked for.

    Raises:
        Refusal: it is malformed, or has what is not known.
    """
    if unknown := sorted(query.keys() - _KNOWN):
        raise Refusal(400, f"the parameter {unknown[0]!r} is not known here, and would be ignored")
    status = query.get("status", "").upper()
    if status and status not in _STATUSES:
        raise Refusal(400, f"status {status!r} is none of {', '.join(sorted(_STATUSES))}")
    team = {labels.TEAM: query["team_id"]} if query.get("team_id") else {}
    return Wanted(
        labels={**labels.of_labels(given_labels), **team},
        user=query.get("user_id", ""),
        status=status,
        active=_flag(query.get("is_active", "false")),
        page=_number(query, "page", 1, 2**31),
        per_page=_number(query, "per_page", 50, _MOST_PAGE),
    )


def found(records: Iterable[SandboxRecord], wanted: Wanted) -> list[SandboxRecord]:
    """Those that are asked for, the newest first."""
    some = [
        one
        for one in records
        if wanted.user in {"", one.owner}
        and wanted.status in {"", standing_of(one).status}
        and (not wanted.active or standing_of(one).status in _ACTIVE)
    ]
    return sorted(some, key=lambda one: (-one.created_at_ms, one.id))


def page(records: Sequence[SandboxRecord], wanted: Wanted) -> dict[str, Any]:
    """One page of a list."""
    begin = (wanted.page - 1) * wanted.per_page
    end = begin + wanted.per_page
    return {
        "sandboxes": [told(one) for one in records[begin:end]],
        "total": len(records),
        "page": wanted.page,
        "perPage": wanted.per_page,
        "hasNext": end < len(records),
    }


def time_of(at_ms: int) -> str:
    """A time on the wire."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _updated_ms(record: SandboxRecord) -> int:
    return record.end.at_ms if record.end is not None else record.ready_at_ms or record.created_at_ms


def _flag(text: str) -> bool:
    if text.lower() not in {"true", "false"}:
        raise Refusal(400, f"is_active {text[:20]!r} is neither true nor false")
    return text.lower() == "true"


def _number(query: Mapping[str, str], name: str, default: int, most: int) -> int:
    text = query.get(name, str(default))
    if not text.isascii() or not text.isdigit() or len(text) > 10 or not 1 <= int(text) <= most:
        raise Refusal(400, f"{name} {text[:20]!r} is not a number from 1 to {most}")
    return int(text)
