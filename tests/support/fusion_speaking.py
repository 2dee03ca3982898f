"""A bridge of SandboxFusion's protocol over a fake gateway, and a client without rules, for tests."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import aiohttp
from aiohttp import web

from rollbox_bridges.fusion.server import Bridge
from rollbox_bridges.fusion.settings import Settings
from tests.support.gateway_fake import API_KEY, FakeGateway

PROGRAM = {"code": "print(1)", "language": "python"}


@dataclass(frozen=True)
class Answer:
    """An answer: its status, its headers and its body."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Speaker:
    """Asks a bridge.

    Attributes:
        url: of the bridge.
        key: that requests have; empty: none.
    """

    url: str
    http: aiohttp.ClientSession
    key: str = API_KEY

    def with_key(self, key: str) -> Speaker:
        """The same with another key."""
        return replace(self, key=key)

    async def run(self, **body: Any) -> Answer:
        """Run a program."""
        return await self.ask("POST", "/run_code", json={**PROGRAM, **body})

    async def ask(self, method: str, path: str, headers: Mapping[str, str] | None = None, **options: Any) -> Answer:
        """Any request."""
        credential = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        async with self.http.request(
            method, self.url + path, headers={**credential, **(headers or {})}, **options
        ) as answer:
            return Answer(answer.status, answer.headers, await answer.read())


@asynccontextmanager
async def speaking(fake: FakeGateway, **settings: Any) -> AsyncIterator[Speaker]:
    """A bridge of a gateway, which keeps no sandboxes ready unless it is told, and a client of it."""
    bridge = Bridge(Settings(**{"url": fake.url, "image": "python:1", "warm": 0, **settings}))
    runner = bridge.runner()
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        async with aiohttp.ClientSession() as http:
            yield Speaker("http://{}:{}".format(*runner.addresses[0][:2]), http)
    finally:
        await runner.cleanup()
