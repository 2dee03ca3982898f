"""Audit entries: which key has done what. Pure: JSON in, dataclasses out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeAlias


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One call that changed something or opened a sandbox.

    Attributes:
        at_ms: when it came (Unix ms).
        took_ms: until its answer had ended.
        request_id: as in the error of the SDK, and in the log.
        owner: whose key it was.
        key_id: which key: "key-...", or "settings" for one of the installation's settings.
        address: of the client, as the gateway sees it: of a proxy, where one is before the gateway.
        forwarded_for: what proxies before the gateway claim of the client; a client can claim it too.
        action: method and route, as "POST /v1/sandboxes/{sandbox_id}/extend".
        names: what the route names, then the sandboxes that the call opened or ended.
        status: of HTTP; 499: the caller had gone before there was an answer.
        code: of the error; "": there was none.
    """

    at_ms: int
    took_ms: int
    request_id: str
    owner: str
    key_id: str
    address: str
    forwarded_for: str
    action: str
    names: tuple[str, ...]
    status: int
    code: str

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> AuditEntry:
        """Read one entry; fields that this version does not know are left out."""
        known = {item.name: body[item.name] for item in fields(cls)}
        return cls(**{**known, "names": tuple(known["names"])})


AuditList: TypeAlias = list[AuditEntry]
