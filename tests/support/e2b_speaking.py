"""Speaks E2B's protocol without any of its clients, so that tests can say what no client would."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import aiohttp
from aiohttp import web

from rollbox_bridges.connect.framing import END_OF_STREAM, Envelopes, enveloped
from rollbox_bridges.e2b.server import Bridge
from rollbox_bridges.e2b.settings import Settings
from tests.support.gateway_fake import API_KEY, FakeGateway

SECRET = b"a secret of tests alone"
MOST = 2**23


@dataclass(frozen=True)
class Answer:
    """An answer: its status, its headers and its body."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def events(self) -> list[dict[str, Any]]:
        """The messages of a stream in JSON; the last one is its end."""
        reader = Envelopes(MOST)
        events = [(one.flags, json.loads(one.content)) for one in reader.feed(self.body)]
        reader.finish()
        assert [flags for flags, _ in events] == [0] * (len(events) - 1) + [END_OF_STREAM]
        return [content for _, content in events]


@dataclass
class Speaker:
    """A client without rules.

    Attributes:
        url: of the bridge.
        sandbox: what the create of `create` has answered.
    """

    url: str
    http: aiohttp.ClientSession
    key: str = API_KEY
    sandbox: dict[str, Any] = field(default_factory=dict)

    async def control(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        """A call of the control plane."""
        return await self._asked(method, path, json=body, headers={"X-API-Key": self.key, **headers})

    async def create(self, **body: Any) -> dict[str, Any]:
        """Create a sandbox, whose credentials later calls have."""
        answer = await self.control("POST", "/v2/sandboxes", {"templateID": "base", "timeout": 60, **body})
        assert answer.status == 201, answer.body
        self.sandbox = answer.json
        return self.sandbox

    def headers(self, **more: str) -> dict[str, str]:
        """What a call within the sandbox has."""
        place = {"E2b-Sandbox-Id": self.sandbox["sandboxID"], "E2b-Sandbox-Port": "49983"}
        return {**place, "X-Access-Token": self.sandbox["envdAccessToken"], **more}

    async def within(self, method: str, path: str, data: Any = None, **headers: str) -> Answer:
        """A call within the sandbox."""
        return await self._asked(method, path, data=data, headers=self.headers(**headers))

    async def call(self, name: str, message: Any, **headers: str) -> Answer:
        """A call with one answer, in JSON."""
        data = json.dumps(message).encode()
        return await self.within("POST", f"/{name}", data=data, **{"Content-Type": "application/json", **headers})

    async def stream(self, name: str, *messages: Any, **headers: str) -> Answer:
        """A call with a stream of answers, in JSON."""
        data = b"".join(enveloped(json.dumps(one).encode()) for one in messages)
        kind = {"Content-Type": "application/connect+json"}
        return await self.within("POST", f"/{name}", data=data, **{**kind, **headers})

    def as_other(self, **changes: Any) -> Speaker:
        """The same with other words."""
        return replace(self, **changes)

    async def _asked(self, method: str, path: str, **options: Any) -> Answer:
        async with self.http.request(method, self.url + path, **options) as answer:
            return Answer(answer.status, answer.headers, await answer.read())


@asynccontextmanager
async def bridging(fake: FakeGateway, **settings: Any) -> AsyncIterator[Speaker]:
    """A bridge of a gateway, and a client of that bridge."""
    bridge = Bridge(Settings(**{"url": fake.url, "secret": SECRET, "default_image": "python:1", **settings}))
    runner = bridge.runner()
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        async with aiohttp.ClientSession() as http:
            yield Speaker("http://{}:{}".format(*runner.addresses[0][:2]), http)
    finally:
        await runner.cleanup()
