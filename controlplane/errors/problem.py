"""``Problem``: an error with a code of the contract's table, a sentence with the value at fault, and extra fields."""

from typing import Self

from google.protobuf.message import DecodeError

from controlplane.errors.table import HINT_OF_REASON, TABLE, Code, Entry
from controlplane.wire import agent_pb2

MEDIA_TYPE = "application/problem+json"


class Problem(Exception):
    """A failure that callers may see. Raise it ``from`` its cause; no other exception leaves the API.

    Args:
        code: a key of ``contract/errors.toml``.
        detail: one sentence that names the value at fault; for people.
        retry_after_ms: how long to wait before a retry; only for codes whose ``retry`` is ``later``.
        details: extra machine-readable fields, by name; values are converted to text. A ``reason`` of the contract
            has a hint of its own.
    """

    def __init__(self, code: Code, detail: str, *, retry_after_ms: int | None = None, **details: object) -> None:
        super().__init__(f"{code}: {detail}")
        self.code: Code = code
        self.detail = detail
        self.retry_after_ms = retry_after_ms
        self.details = {name: str(value) for name, value in details.items()}

    @property
    def entry(self) -> Entry:
        """The row of the table: HTTP and gRPC status, fault, retry, title, hint."""
        return TABLE[self.code]

    @property
    def hint(self) -> str:
        """What to do next: that of its reason, else that of its code; empty where only the detail says it."""
        return HINT_OF_REASON.get(self.details.get("reason", ""), self.entry.hint)

    def to_json(self, request_id: str) -> dict[str, object]:
        """The body of an ``application/problem+json`` answer; every part of rollbox writes the same fields."""
        entry = self.entry
        return {
            "type": f"urn:rollbox:error:{self.code}",
            "title": entry.title,
            "status": entry.http,
            "detail": self.detail,
            "code": self.code,
            "fault": entry.fault,
            "retry": entry.retry,
            "mask_sample": entry.mask_sample,
            "hint": self.hint,
            "request_id": request_id,
            **({} if self.retry_after_ms is None else {"retry_after_ms": self.retry_after_ms}),
            "details": dict(sorted(self.details.items())),
        }

    def encode(self) -> bytes:
        """Serializes the problem for the details of a gRPC status."""
        return agent_pb2.Problem(code=self.code, detail=self.detail, details=self.details).SerializeToString()

    @classmethod
    def decode(cls, data: bytes) -> Self | None:
        """Reads the details of a gRPC status; None when they are not a problem of this contract."""
        try:
            wire = agent_pb2.Problem.FromString(data)
        except DecodeError:
            return None
        if wire.code not in TABLE:
            return None
        problem = cls(wire.code, wire.detail)
        problem.details = dict(wire.details)
        return problem
