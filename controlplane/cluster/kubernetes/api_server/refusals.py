"""Translates the API server's error answers into problems, and says whether a retry makes sense. Pure."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, Self

from controlplane.errors import Code, Problem

MAX_WORDS_CHARS: Final = 1000
# A longer Retry-After than this is not waited for.
MAX_RETRY_AFTER_S: Final = 30.0
_RETRIED: Final = frozenset({408, 429, 500, 502, 503, 504})
_QUOTA: Final = re.compile(r"(exceeded|status unknown for) quota: ([^,\s]+)")
_RUNTIME_CLASS: Final = re.compile(r"runtimeclass(es)?\b.*not found", re.I)


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error answer of the API server.

    Attributes:
        reason: Kubernetes' reason (``AlreadyExists``); empty if the answer is not a Kubernetes ``Status``.
        fields: the invalid fields of the object.
        retry_after_s: how long to wait before a retry; None if it does not say.
    """

    status: int
    reason: str
    message: str
    fields: tuple[str, ...] = ()
    retry_after_s: float | None = None

    @classmethod
    def of(cls, status: int, body: bytes, retry_after: str | None = None) -> Self:
        """Parses an answer: a Kubernetes ``Status``, or any text of a proxy in between."""
        pause_s = float(retry_after) if retry_after and retry_after.isdigit() else None
        try:
            said = json.loads(body)
            return cls._read(status, said, pause_s)
        except (ValueError, AttributeError):
            return cls(status, "", body.decode("utf-8", "replace").strip()[:MAX_WORDS_CHARS], (), pause_s)

    @classmethod
    def _read(cls, status: int, said: Mapping[str, Any], pause_s: float | None) -> Self:
        details = said.get("details") or {}
        seconds = details.get("retryAfterSeconds")
        causes = details.get("causes") or ()
        return cls(
            status,
            str(said.get("reason") or ""),
            str(said.get("message") or "")[:MAX_WORDS_CHARS],
            tuple(str(one["field"]) for one in causes if one.get("field")),
            float(seconds) if pause_s is None and seconds else pause_s,
        )

    @property
    def passing(self) -> bool:
        """Whether a retry of the same call may succeed."""
        # A conflict is with another writer, so a retry may succeed; an object that exists already will not go away.
        return self.status in _RETRIED or (self.status == HTTPStatus.CONFLICT and self.reason != "AlreadyExists")

    def problem(self, what: str) -> Problem:
        """The problem for the call ``what`` (method and path)."""
        return Problem(self._code(), self._detail(what), api_status=self.status, api_reason=self.reason)

    def _code(self) -> Code:
        if _RUNTIME_CLASS.search(self.message):
            return "isolation_missing"
        if self.status == HTTPStatus.FORBIDDEN and _QUOTA.search(self.message):
            return "capacity_unavailable"
        if self.status in (HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY):
            return "invalid_argument"
        if self.status == HTTPStatus.TOO_MANY_REQUESTS:
            return "capacity_unavailable"
        return "upstream_timeout" if self.status in (408, 504) else "internal"

    def _detail(self, what: str) -> str:
        if quota := _QUOTA.search(self.message):
            state = "is used up" if quota[1] == "exceeded" else "was declared a moment ago and is not counted yet"
            return f"the namespace quota {quota[2]} {state}: {self.message}"
        if _RUNTIME_CLASS.search(self.message):
            return f"the RuntimeClass of the sandboxes is missing: {self.message}"
        if self.status == HTTPStatus.UNAUTHORIZED:
            return (
                f"the API server does not know the credential that {what} came with: it is wrong, revoked or expired, "
                "or the clocks of the two machines differ"
            )
        fields = f" ({', '.join(self.fields)})" if self.fields else ""
        return f"the API server refused {what} with {self.status} {self.reason}{fields}: {self.message}"


class Refused(Problem):
    """The API server has refused a call; callers that handle certain statuses check ``refusal``."""

    def __init__(self, refusal: Refusal, what: str) -> None:
        told = refusal.problem(what)
        super().__init__(told.code, told.detail)
        self.details = told.details
        self.refusal = refusal
