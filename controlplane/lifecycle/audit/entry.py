"""Audit entries: which key has done what, on which, and how it ended. Pure."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from typing import Final, Self

# What callers may choose the length of.
MOST_CHARS: Final = 256
MOST_NAMES: Final = 64


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One call that changes something, or opens a sandbox. It has nothing of bodies, queries and credentials.

    Attributes:
        at_ms: when it came (Unix ms).
        took_ms: until its answer had ended.
        owner, key_id: whose key it had, and which.
        address: of the client, as the gateway sees it; of a proxy, where one is before the gateway.
        forwarded_for: what proxies before the gateway claim of the client; a client can claim it too.
        action: method and route, as ``POST /v1/sandboxes/{sandbox_id}/extend``.
        names: what the route names, then the sandboxes that the call was about; bounded.
        status: of the answer; 499: the caller had gone before there was one.
        code: of the problem; empty: there was none.
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

    @property
    def line(self) -> str:
        """The entry as a line of JSON."""
        return json.dumps({"audit": 1, **asdict(self)}, separators=(",", ":"))

    @classmethod
    def read(cls, line: str) -> Self | None:
        """An entry from a line; None: it is no such line, as one that was cut off in the middle."""
        try:
            told = json.loads(line)
            return cls(**{one.name: told[one.name] for one in fields(cls)} | {"names": tuple(told["names"])})
        except (ValueError, KeyError, TypeError):
            return None


@dataclass(frozen=True, slots=True)
class AuditQuery:
    """Which entries are asked for; what is None is not asked about.

    Attributes:
        after_ms: those that came later (Unix ms).
        owner, key_id, request_id: those of these alone.
        name: those that name this, or are about this sandbox.
        most: so many of the newest.
    """

    after_ms: int = 0
    owner: str | None = None
    key_id: str | None = None
    request_id: str | None = None
    name: str | None = None
    most: int = 1_000

    def takes(self, entry: AuditEntry) -> bool:
        """Whether an entry is asked for."""
        wanted = ((self.owner, entry.owner), (self.key_id, entry.key_id), (self.request_id, entry.request_id))
        if entry.at_ms <= self.after_ms or any(one not in (None, other) for one, other in wanted):
            return False
        return self.name is None or self.name in entry.names


def chosen(lines: Iterable[str], query: AuditQuery) -> list[AuditEntry]:
    """Those of the lines that are asked for, in their order. Cost: about 5 us a line."""
    return [entry for line in lines if (entry := AuditEntry.read(line)) is not None and query.takes(entry)]


def names_of(named: Iterable[str], about: Iterable[str]) -> tuple[str, ...]:
    """What a call was about, each once and bounded."""
    return tuple(one[:MOST_CHARS] for one in dict.fromkeys([*named, *about]))[:MOST_NAMES]
