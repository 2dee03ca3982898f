"""The events of the fake gateway: a list that tests extend, told as the control plane tells it."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

# As the control plane: what comes again begins so much before the last event that was read.
OVERLAP_MS = 60_000


@dataclass
class FakeEvents:
    """What has happened, and how streams break.

    Attributes:
        told: the data of each event, oldest first.
        breaks: of the next streams, in order: after how many events the connection is cut, in the middle of a line.
        ends: of the next streams, in order: after how many events they end in good order, as where a gateway drains.
        more: set it when something was added.
        dead: dead letters of webhooks.
        asked: queries for these.
    """

    told: list[dict[str, Any]] = field(default_factory=list)
    breaks: deque[int] = field(default_factory=deque)
    ends: deque[int] = field(default_factory=deque)
    more: asyncio.Event = field(default_factory=asyncio.Event)
    dead: list[dict[str, Any]] = field(default_factory=list)
    asked: list[dict[str, str]] = field(default_factory=list)

    def add(self, kind: str, at_ms: int, sandbox_id: str = "sb-1", **more: Any) -> None:
        """Have something happen."""
        told = {
            "sandbox_id": sandbox_id,
            "owner": "test",
            "kind": kind,
            "at_ms": at_ms,
            "state": "running",
            "text": kind,
        }
        self.told.append({**told, "later": 1, **more})
        self.more.set()

    async def dead_letters(self, request: web.Request) -> web.Response:
        """Tell all of them."""
        self.asked.append(dict(request.query))
        return web.json_response({"letters": self.dead})

    def bury(self, events: int, why: str = "expired", **event: Any) -> None:
        """Have so many events be given up; ``event`` is the data of one."""
        told = {"webhook": "ops", "at_ms": 9_000, "why": why, "detail": "HTTP 503", "attempts": 4, "events": events}
        times = {"from_ms": 1_000, "to_ms": 1_000 if events == 1 else 5_000}
        one = {"id": "sb-1.1000.end", "data": event} if event else None
        self.dead.append({**told, **times, "event": one, "later": 1})

    async def stream(self, request: web.Request) -> web.StreamResponse:
        """Tell what has happened from a moment on."""
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await answer.prepare(request)
        after = request.query.get("after")
        since, cursor = int(after or 0) - OVERLAP_MS, int(after or 1)
        await answer.write(f"id: {cursor}\n\n".encode())
        cut, end = (left.popleft() if left else None for left in (self.breaks, self.ends))
        follow, sent, count = request.query.get("follow") != "false", 0, 0
        while True:
            for one in self.told[sent:]:
                sent += 1
                if one["at_ms"] < since:
                    continue
                cursor = max(cursor, one["at_ms"])
                if count == cut:
                    await answer.write(f"id: {cursor}\ndata: {{".encode())
                    assert request.transport is not None
                    request.transport.abort()
                    return answer
                if count == end:
                    return answer
                await answer.write(_event(one, cursor))
                count += 1
            if not follow:
                await answer.write(b": end\n\n")
                return answer
            self.more.clear()
            await self.more.wait()


def _event(told: dict[str, Any], cursor: int) -> bytes:
    event_id = f"{told['sandbox_id']}.{told['at_ms']}.{told['kind']}"
    event = {"specversion": "1.0", "id": event_id, "type": f"dev.rollbox.sandbox.{told['kind']}", "data": told}
    return f"id: {cursor}\ndata: {json.dumps(event)}\n\n".encode()
