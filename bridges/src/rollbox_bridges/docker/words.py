"""Refusals in Docker's form, `{"message": ...}`, and what errors of rollbox are there. Pure."""

from __future__ import annotations

from typing import Final

from rollbox import SandboxError
from rollbox_bridges.faults import ENDED, sentence

# 409 is what a call on a container that does not run gets: so it is of one that has ended.
_STATUS: Final = {
    "invalid_argument": 400,
    "unauthenticated": 401,
    "permission_denied": 403,
    "exec_not_found": 404,
    "file_not_found": 404,
    "not_found": 404,
    "image_not_found": 404,
    "checkpoint_not_found": 404,
    "checkpoint_expired": 404,
    "conflict": 409,
    "payload_too_large": 413,
    "unsupported": 501,
    "quota_exceeded": 429,
    "rate_limited": 429,
    "no_space": 507,
    **dict.fromkeys(ENDED, 409),
}
_BY_FAULT: Final = {"caller": 400, "workload": 409, "capacity": 503, "platform": 500}


class Refusal(Exception):
    """An answer that is an error.

    Attributes:
        status: of HTTP.
        message: one sentence.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message

    def body(self) -> dict[str, str]:
        """The wire form."""
        return {"message": self.message}


def not_honoured(what: str, why: str) -> Refusal:
    """Refuse an option whose meaning there is not."""
    return Refusal(400, f"{what} is not supported by rollbox's bridge: {why}")


def not_implemented(what: str, instead: str = "") -> Refusal:
    """Refuse a call that there is not."""
    return Refusal(501, f"{what} is not supported by rollbox's bridge. {instead}".strip())


def as_refusal(error: SandboxError) -> Refusal:
    """An error of the platform, with its code, its fault and whether it masks the sample."""
    status = _STATUS.get(error.code) or _BY_FAULT[error.fault]
    message = sentence(error)
    if error.code == "image_not_found":
        # Clients that look for these words pull the image, and try again.
        message = f"No such image: {message}"
    return Refusal(status, message)


def not_running(name: str, why: str = "") -> Refusal:
    """Refuse what a container must run for."""
    return Refusal(409, f"container {name} is not running" + (f": {why}" if why else ""))


def no_such_container(name: str) -> Refusal:
    """Refuse a name that no container has."""
    return Refusal(404, f"No such container: {name[:200]}")
