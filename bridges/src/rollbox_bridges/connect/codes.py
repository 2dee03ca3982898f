"""Errors of Connect: a code, its HTTP status, its JSON. Pure."""

from __future__ import annotations

import json
from typing import Final

STATUS: Final = {
    "canceled": 499,
    "unknown": 500,
    "invalid_argument": 400,
    "deadline_exceeded": 504,
    "not_found": 404,
    "already_exists": 409,
    "permission_denied": 403,
    "resource_exhausted": 429,
    "failed_precondition": 400,
    "aborted": 409,
    "out_of_range": 400,
    "unimplemented": 501,
    "internal": 500,
    "unavailable": 503,
    "data_loss": 500,
    "unauthenticated": 401,
}
"""Code -> HTTP status of a call without a stream."""


class ConnectError(Exception):
    """A call failed.

    Attributes:
        code: one of `STATUS`.
        message: one sentence.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    @property
    def status(self) -> int:
        """The HTTP status of the answer to a call without a stream."""
        return STATUS[self.code]

    def to_json(self) -> dict[str, str]:
        """The wire form."""
        return {"code": self.code, "message": self.message}


def end_of_stream(error: ConnectError | None) -> bytes:
    """The content of the last envelope of a stream."""
    return json.dumps({} if error is None else {"error": error.to_json()}).encode()
