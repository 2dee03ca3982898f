"""What errors of rollbox are called in E2B's protocol. Pure.

A sandbox that has ended has three answers: 404 of the control plane, 502 with a body that says
"was not found" in place of any answer from within, and "STOPPED state" for clients that look for that before they try
again. The code of rollbox, whose fault it is, and whether to mask the sample stand in every message.
"""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

from rollbox import SandboxError
from rollbox_bridges.connect.codes import ConnectError
from rollbox_bridges.faults import ENDED, sentence


class _Said(NamedTuple):
    status: int
    connect: str


# A code of Connect that means something else to clients is not taken: resource_exhausted is a rate limit to them.
_SAID: Final = {
    "invalid_argument": _Said(400, "invalid_argument"),
    "unauthenticated": _Said(401, "unauthenticated"),
    "permission_denied": _Said(403, "permission_denied"),
    "exec_not_found": _Said(404, "not_found"),
    "file_not_found": _Said(404, "not_found"),
    "not_found": _Said(404, "not_found"),
    "image_not_found": _Said(404, "not_found"),
    "checkpoint_not_found": _Said(404, "not_found"),
    "checkpoint_expired": _Said(404, "not_found"),
    "conflict": _Said(409, "failed_precondition"),
    "payload_too_large": _Said(413, "out_of_range"),
    "unsupported": _Said(501, "unimplemented"),
    "quota_exceeded": _Said(429, "resource_exhausted"),
    "rate_limited": _Said(429, "resource_exhausted"),
    "pids_exhausted": _Said(400, "failed_precondition"),
    "no_space": _Said(507, "failed_precondition"),
    "exec_deadline": _Said(504, "deadline_exceeded"),
    "port_unreachable": _Said(502, "unavailable"),
    "capacity_unavailable": _Said(503, "unavailable"),
    "start_queue_timeout": _Said(503, "unavailable"),
    "internal": _Said(500, "internal"),
}
# Of the rest whose fault says enough.
_BY_FAULT: Final = {
    "caller": _Said(400, "invalid_argument"),
    "workload": _Said(400, "failed_precondition"),
    "capacity": _Said(503, "unavailable"),
    "platform": _Said(500, "unavailable"),
}
# A user that the image has not is a wrong credential to these clients.
_NO_USER: Final = _Said(401, "unauthenticated")


class Refusal(Exception):
    """An answer of the control plane, or over a file, that is an error.

    Attributes:
        status: of HTTP.
        message: one sentence.
        code: of rollbox, or "" where the bridge refuses by itself.
        headers: beside the body.
    """

    def __init__(self, status: int, message: str, code: str = "", headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.headers = headers or {}

    def body(self) -> dict[str, Any]:
        """The wire form."""
        told: dict[str, Any] = {"code": self.status, "message": self.message}
        return {**told, "error_code": self.code} if self.code else told


class Gone(Exception):
    """The sandbox has ended, or there is none of this id for this key: the answer in place of one from within it."""

    def __init__(self, sandbox_id: str, message: str) -> None:
        super().__init__(message)
        self.sandbox_id = sandbox_id
        self.message = message

    def body(self) -> bytes:
        """The wire form; its status is 502."""
        told = {"sandboxId": self.sandbox_id, "message": f"The sandbox was not found: {self.message}", "code": 502}
        return json.dumps(told).encode()


def unsupported(what: str, instead: str = "") -> Refusal:
    """Refuse what rollbox has not."""
    return Refusal(501, f"{what} is not supported by rollbox's bridge. {instead}".strip(), "unsupported")


def ended(sandbox_id: str, said: str) -> str:
    """What is said of a sandbox that has ended, in the words that retry loops of clients look for."""
    return f"sandbox {sandbox_id} does not exist any more, it is in STOPPED state: {said}"


def gone(error: SandboxError, sandbox_id: str) -> Gone | None:
    """Tell whether an error says that the sandbox has ended."""
    return Gone(sandbox_id, ended(sandbox_id, sentence(error))) if error.code in ENDED else None


def as_refusal(error: SandboxError, sandbox_id: str = "") -> Refusal:
    """An error as the control plane, or an answer over a file, tells it."""
    if error.code in ENDED and sandbox_id:
        return Refusal(404, ended(sandbox_id, sentence(error)), error.code)
    said = _said(error)
    message = sentence(error)
    if error.code in {"image_not_found", "checkpoint_not_found", "checkpoint_expired"}:
        message = f"the template does not exist: {message}"
    return Refusal(said.status, message, error.code, _retry(error, said.status))


def as_connect(error: SandboxError) -> ConnectError:
    """An error as a call within the sandbox tells it."""
    return ConnectError(_said(error).connect, sentence(error))


def in_stream(error: SandboxError, sandbox_id: str) -> ConnectError:
    """An error in the middle of a stream, where no status can be sent any more."""
    if (end := gone(error, sandbox_id)) is not None:
        return ConnectError("unavailable", f"The sandbox was not found: {end.message}")
    return as_connect(error)


def _said(error: SandboxError) -> _Said:
    if error.details.get("reason") == "user_not_found":
        return _NO_USER
    return _SAID.get(error.code) or _BY_FAULT[error.fault]


def _retry(error: SandboxError, status: int) -> dict[str, str]:
    """Say whether to try again, which clients decide by the status alone otherwise."""
    headers = {"Should-Retry": "true" if error.retry == "later" and status != 409 else "false"}
    if error.retry_after_ms is not None:
        headers["Retry-After"] = str(max(1, round(error.retry_after_ms / 1000)))
    return headers
