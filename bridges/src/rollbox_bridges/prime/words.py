"""What errors of rollbox are called in Prime's protocol. Pure.

A sandbox that has ended is told by its status and its kind of error, for which clients ask once an answer says that it
is gone: 409 of the gateway, `not_found` of a command. So no other error may be either of these.
"""

from __future__ import annotations

from typing import Any, Final, Literal, NamedTuple, TypeAlias

from rollbox import End, SandboxError
from rollbox_bridges.connect.codes import ConnectError
from rollbox_bridges.faults import ENDED, meaning, sentence

Status: TypeAlias = Literal["PENDING", "PROVISIONING", "RUNNING", "PAUSED", "ERROR", "TERMINATED", "TIMEOUT"]
"""All that clients know; another one breaks those that wait."""


class _Said(NamedTuple):
    status: int
    connect: str


# Of a command, `not_found` would be its sandbox. Clients try 409 of the gateway again, and a batch with 404 one by one.
_SAID: Final = {
    "invalid_argument": _Said(400, "invalid_argument"),
    "unauthenticated": _Said(401, "unauthenticated"),
    "permission_denied": _Said(403, "permission_denied"),
    "exec_not_found": _Said(404, "not_found"),
    "file_not_found": _Said(404, "failed_precondition"),
    "not_found": _Said(404, "failed_precondition"),
    "image_not_found": _Said(404, "failed_precondition"),
    "checkpoint_not_found": _Said(404, "failed_precondition"),
    "checkpoint_expired": _Said(404, "failed_precondition"),
    "conflict": _Said(400, "failed_precondition"),
    "payload_too_large": _Said(413, "out_of_range"),
    "unsupported": _Said(501, "unimplemented"),
    "quota_exceeded": _Said(429, "resource_exhausted"),
    "rate_limited": _Said(429, "resource_exhausted"),
    "pids_exhausted": _Said(400, "failed_precondition"),
    "no_space": _Said(507, "failed_precondition"),
    "exec_deadline": _Said(408, "deadline_exceeded"),
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
_OOM: Final = "OOM_KILLED"
# The kinds of errors that clients have classes for; others are the code of rollbox in capital letters.
_TYPES: Final = {
    "oom_killed": _OOM,
    "ttl_expired": "TIMEOUT",
    "image_not_found": "IMAGE_PULL_FAILED",
    "image_pull_failed": "IMAGE_PULL_FAILED",
}
_TERMINATED: Final = frozenset({"deleted", "create_abandoned", "lease_expired", "idle_expired", "stopped_by_operator"})


class Refusal(Exception):
    """An answer that is an error.

    Attributes:
        status: of HTTP.
        message: one sentence.
        code: of rollbox, or "" where the bridge refuses by itself.
    """

    def __init__(self, status: int, message: str, code: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code

    def body(self) -> dict[str, Any]:
        """The wire form."""
        return {"detail": self.message, **({"error_code": self.code} if self.code else {})}


class Gone(Exception):
    """The sandbox has ended, or there is none of this id for this key: the answer in place of one from within it."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    def body(self) -> dict[str, Any]:
        """The wire form; its status is 409, by which clients of all versions ask why it has ended."""
        return {"error": "sandbox_terminated", "detail": self.message}

    def to_connect(self) -> ConnectError:
        """The same of a command."""
        return ConnectError("not_found", self.message)


class Standing(NamedTuple):
    """Where a sandbox is in its life, as clients are told.

    Attributes:
        error_type, error_message: of an end that was no wish of the caller.
    """

    status: Status
    error_type: str | None = None
    error_message: str | None = None


def unsupported(what: str, instead: str = "") -> Refusal:
    """Refuse what rollbox has not."""
    return Refusal(501, f"{what} is not supported by rollbox's bridge. {instead}".strip(), "unsupported")


def standing(state: str, end: End | None) -> Standing:
    """Where a sandbox is in its life.

    Args:
        state: of its record.
        end: why it has ended.
    """
    if end is not None:
        return Standing(_status_of_end(end), _TYPES.get(end.cause, end.cause.upper()), meaning(end))
    if state in {"requested", "queued"}:
        return Standing("PENDING")
    return Standing({"starting": "PROVISIONING", "running": "RUNNING"}.get(state, "TERMINATED"))  # type: ignore[arg-type]


def _status_of_end(end: End) -> Status:
    if end.cause == "ttl_expired":
        return "TIMEOUT"
    return "TERMINATED" if end.cause in _TERMINATED else "ERROR"


def gone(error: SandboxError) -> Gone | None:
    """Tell whether an error says that the sandbox has ended."""
    return Gone(sentence(error)) if error.code in ENDED else None


def as_refusal(error: SandboxError) -> Refusal:
    """An error as the control plane, or an answer over a file, tells it."""
    status = 404 if error.code in ENDED else _said(error).status
    return Refusal(status, sentence(error), error.code)


def as_connect(error: SandboxError) -> ConnectError:
    """An error as a command tells it."""
    return ConnectError("not_found" if error.code in ENDED else _said(error).connect, sentence(error))


def _said(error: SandboxError) -> _Said:
    return _SAID.get(error.code) or _BY_FAULT[error.fault]
