"""The problems of the fake gateway, with what the contract says of their codes."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from rollbox.errors import BY_CODE

HTTP = {"unauthenticated": 401, "sandbox_not_found": 404, "exec_not_found": 404, "conflict": 409, "deleted": 410}
HTTP |= {"invalid_argument": 400, "capacity_unavailable": 503, "draining": 503, "upstream_timeout": 504}
HTTP |= {"stream_interrupted": 502, "internal": 500, "quota_exceeded": 429, "image_not_found": 422, "sandbox_lost": 410}
HTTP |= {"disk_full": 410, "node_lost": 410, "unsupported": 422, "egress_unavailable": 503}
HTTP |= {"not_found": 404, "file_not_found": 404, "permission_denied": 403, "no_space": 507}


def problem(
    code: str,
    detail: str,
    retry_after_ms: int | None = None,
    status: int | None = None,
    details: dict[str, str] | None = None,
) -> web.Response:
    """Build an answer of the contract's shape."""
    kind = BY_CODE.get(code)
    body: dict[str, Any] = {
        "code": code,
        "detail": detail,
        "request_id": "req-1",
        "details": details or {},
        "type": f"urn:rollbox:error:{code}",
    }
    if kind is not None:
        body |= {"fault": kind.fault, "retry": kind.retry, "mask_sample": kind.mask_sample, "hint": kind.hint}
    if retry_after_ms is not None:
        body["retry_after_ms"] = retry_after_ms
    return web.json_response(body, status=status or HTTP[code], content_type="application/problem+json")
