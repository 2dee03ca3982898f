"""Calls an ASGI app without a server: one request, one answer, in the caller's loop."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any
from urllib.parse import urlencode

from starlette.types import ASGIApp, Message


@dataclass(frozen=True)
class Answer:
    """Status, headers in lower case, body."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """The problem's code; checks that the answer is a problem at all."""
        assert self.headers["content-type"] == "application/problem+json", self
        assert self.json["status"] == self.status
        return str(self.json["code"])


@dataclass(frozen=True)
class Caller:
    """Speaks to one app with one credential."""

    app: ASGIApp
    key: str | None

    async def __call__(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        raw: bytes | None = None,
        query: Mapping[str, str] | Sequence[tuple[str, str]] = (),
        headers: Mapping[str, str] = MappingProxyType({}),
        key: str | None = None,
        hang_up: asyncio.Event | None = None,
    ) -> Answer:
        data = raw if raw is not None else (b"" if body is None else json.dumps(body).encode())
        kind = {} if body is None else {"content-type": "application/json"}
        sent = {"content-length": str(len(data)), **kind, **headers}
        if key or self.key:
            sent.setdefault("authorization", f"Bearer {key or self.key}")
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": urlencode(query).encode(),
            "headers": [(name.lower().encode(), value.encode()) for name, value in sent.items()],
            "server": ("test", 80),
            "scheme": "http",
        }
        return await _exchange(self.app, scope, data, hang_up or asyncio.Event())


async def _exchange(app: ASGIApp, scope: dict[str, Any], data: bytes, hang_up: asyncio.Event) -> Answer:
    incoming: list[Message] = [{"type": "http.request", "body": data, "more_body": False}]
    outgoing: list[Message] = []

    async def receive() -> Message:
        if incoming:
            return incoming.pop()
        await hang_up.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        outgoing.append(message)

    await app(scope, receive, send)
    start = outgoing[0]
    headers = {name.decode(): value.decode() for name, value in start["headers"]}
    return Answer(start["status"], headers, b"".join(message.get("body", b"") for message in outgoing[1:]))
