"""The audit entries of the fake gateway: a list that tests fill, and what it was asked for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from aiohttp import web


@dataclass
class FakeAudit:
    """What there is.

    Attributes:
        entries: as JSON, oldest first.
        asked: queries.
    """

    entries: list[dict[str, Any]] = field(default_factory=list)
    asked: list[dict[str, str]] = field(default_factory=list)

    def add(self, action: str, *names: str, status: int = 200, code: str = "", at_ms: int = 1_000) -> None:
        """Have something done by the key ``key-1`` of ``me``."""
        told = {"at_ms": at_ms, "took_ms": 5, "request_id": "req-1", "owner": "me", "key_id": "key-1"}
        where = {"address": "10.1.2.3", "forwarded_for": "", "later": 1}
        self.entries.append({**told, **where, "action": action, "names": [*names], "status": status, "code": code})

    async def find(self, request: web.Request) -> web.Response:
        """Tell all of them."""
        self.asked.append(dict(request.query))
        return web.json_response({"entries": self.entries})
