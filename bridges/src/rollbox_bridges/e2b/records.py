"""Records of sandboxes in E2B's form, lists of them, and their pages. Pure."""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl

from rollbox import SandboxRecord
from rollbox_bridges.e2b.creating import OWN, TEMPLATE_LABEL
from rollbox_bridges.e2b.settings import ENVD_VERSION
from rollbox_bridges.e2b.words import Refusal

_CLIENT_ID: Final = "rollbox"
_MIB: Final = 2**20
_MOST_PAGE: Final = 100
_LIMIT: Final = re.compile(r"[0-9]{1,3}")
_STATES: Final = frozenset({"running", "paused"})


class Page(NamedTuple):
    """Some of the sandboxes of a list, and the token of the next ones; "" after the last."""

    records: Sequence[SandboxRecord]
    next_token: str


def created(record: SandboxRecord, access: str, traffic: str, domain: str) -> dict[str, Any]:
    """The answer to a create and to a connect."""
    return {
        "templateID": template_of(record),
        "sandboxID": record.id,
        "clientID": _CLIENT_ID,
        "envdVersion": ENVD_VERSION,
        "envdAccessToken": access,
        "trafficAccessToken": traffic,
        "domain": domain,
    }


def listed(record: SandboxRecord) -> dict[str, Any]:
    """One sandbox of a list."""
    return {
        "templateID": template_of(record),
        "sandboxID": record.id,
        "clientID": _CLIENT_ID,
        "startedAt": _time(record.ready_at_ms or record.created_at_ms),
        "endAt": _time(record.expires_at_ms),
        "cpuCount": max(1, -(-int(record.cpu_millicores.limit) // 1000)),
        "memoryMB": int(record.memory_bytes.limit) // _MIB,
        "diskSizeMB": (record.disk_bytes or 0) // _MIB,
        "metadata": metadata_of(record.labels),
        "state": "running",
        "envdVersion": ENVD_VERSION,
    }


def told(record: SandboxRecord, access: str, domain: str) -> dict[str, Any]:
    """One sandbox, asked for by its id."""
    internet = record.egress not in {"", "offline"}
    return {**listed(record), "envdAccessToken": access, "domain": domain, "allowInternetAccess": internet}


def template_of(record: SandboxRecord) -> str:
    """The template that its client has asked for; its image where it was made without the bridge."""
    return record.labels.get(TEMPLATE_LABEL) or record.image


def metadata_of(labels: Mapping[str, str]) -> dict[str, str]:
    """The metadata in labels: all but the bridge's own."""
    return {key: value for key, value in labels.items() if not key.startswith(OWN)}


def wanted(query: Mapping[str, str]) -> dict[str, str]:
    """The metadata that a list is asked for: a query within the query.

    Raises:
        Refusal: it is none.
    """
    text = query.get("metadata", "")
    try:
        return dict(parse_qsl(text, keep_blank_values=True, strict_parsing=True)) if text else {}
    except ValueError as error:
        raise Refusal(400, f"metadata {text[:200]!r} is not of the form key=value&key=value: {error}") from error


def running(records: Iterable[SandboxRecord], states: Sequence[str], template: str = "") -> list[SandboxRecord]:
    """Those that a list may have, the newest first.

    Raises:
        Refusal: there is no such state.
    """
    if unknown := set(states) - _STATES:
        raise Refusal(400, f"state {sorted(unknown)[0]!r} is none of {', '.join(sorted(_STATES))}")
    if states and "running" not in states:
        return []
    found = [one for one in records if one.state == "running" and template in {"", template_of(one)}]
    return sorted(found, key=_order)


def page(records: Sequence[SandboxRecord], limit: int, token: str) -> Page:
    """Cut a page from the sandboxes of a list.

    Raises:
        Refusal: the token is none of these.
    """
    after = _position(token) if token else None
    rest = [one for one in records if after is None or _order(one) > after]
    cut = rest[:limit]
    return Page(cut, _token(cut[-1]) if len(rest) > limit else "")


def limit_of(query: Mapping[str, str]) -> int:
    """How many sandboxes a page has.

    Raises:
        Refusal: it is no such number.
    """
    text = query.get("limit", str(_MOST_PAGE))
    if not _LIMIT.fullmatch(text) or not 1 <= int(text) <= _MOST_PAGE:
        raise Refusal(400, f"limit {text[:20]!r} is not a number from 1 to {_MOST_PAGE}")
    return int(text)


def _order(record: SandboxRecord) -> tuple[int, str]:
    return (-record.created_at_ms, record.id)


def _token(record: SandboxRecord) -> str:
    return urlsafe_b64encode(f"{record.created_at_ms} {record.id}".encode()).decode()


def _position(token: str) -> tuple[int, str]:
    try:
        created_at_ms, _, sandbox_id = urlsafe_b64decode(token).decode().partition(" ")
        return (-int(created_at_ms), sandbox_id)
    except (NotBase64, ValueError) as error:
        raise Refusal(400, f"nextToken {token[:100]!r} is none that a list has given") from error


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
