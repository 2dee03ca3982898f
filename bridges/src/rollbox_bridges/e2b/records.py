"""Records of sandboxes in E2B's form. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from rollbox import SandboxRecord
from rollbox_bridges.e2b.creating import OWN, TEMPLATE_LABEL
from rollbox_bridges.e2b.settings import ENVD_VERSION

_CLIENT_ID: Final = "rollbox"
_MIB: Final = 2**20


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
        "startedAt": _time(started_at_ms(record)),
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


def started_at_ms(record: SandboxRecord) -> int:
    """When it began to run, as clients are told."""
    return record.ready_at_ms or record.created_at_ms


def template_of(record: SandboxRecord) -> str:
    """The template that its client has asked for; its image where it was made without the bridge."""
    return record.labels.get(TEMPLATE_LABEL) or record.image


def metadata_of(labels: Mapping[str, str]) -> dict[str, str]:
    """The metadata in labels: all but the bridge's own."""
    return {key: value for key, value in labels.items() if not key.startswith(OWN)}


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
