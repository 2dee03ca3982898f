"""Speaks Prime's protocol without any of its clients, so that tests can say what no client would."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import uuid4

import aiohttp
from aiohttp import web
from google.protobuf import json_format

from rollbox_bridges.connect.framing import END_OF_STREAM, Envelopes, enveloped
from rollbox_bridges.prime.messages import SERVICE, SESSION
from rollbox_bridges.prime.server import Bridge
from rollbox_bridges.prime.settings import Settings
from tests.support.e2b_speaking import MOST, SECRET, Answer
from tests.support.gateway_fake import API_KEY, FakeGateway


@dataclass
class Speaker:
    """A client without rules.

    Attributes:
        url: of the bridge.
        made: what the create of `create` has answered.
    """

    url: str
    http: aiohttp.ClientSession
    key: str = API_KEY
    made: dict[str, Any] = field(default_factory=dict)

    async def control(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        """A call of the control plane."""
        told = {"Authorization": f"Bearer {self.key}", **headers}
        return await self._asked(method, f"{self.url}/api/v1{path}", json=body, headers=told)

    async def create(self, key: str = "", **body: Any) -> dict[str, Any]:
        """Create a sandbox, whose credentials later calls have."""
        sent = {"name": "mine", "docker_image": "python:1", "idempotency_key": key or uuid4().hex, "vm": True, **body}
        answer = await self.control("POST", "/sandbox", sent)
        assert answer.status == 200, answer.body
        self.made = answer.json
        return self.made

    async def within(self, method: str, path: str, data: Any = None, **headers: str) -> Answer:
        """A call at the gateway."""
        auth = self.made["gatewayAuth"]
        told = {"Authorization": f"Bearer {auth['token']}", **headers}
        url = f"{self.url}/{auth['user_ns']}/{auth['job_id']}/{path}"
        return await self._asked(method, url, data=data, headers=told)

    async def call(self, name: str, kind: str, message: dict[str, Any], **headers: str) -> Answer:
        """A call with one answer, in binary."""
        data = json_format.ParseDict(message, SESSION[kind]()).SerializeToString()
        return await self.within("POST", f"{SERVICE}/{name}", data, **{"Content-Type": "application/proto", **headers})

    async def stream(self, name: str, kind: str, message: dict[str, Any], **headers: str) -> list[Any]:
        """A call with a stream of answers, in binary: the events as JSON, and the end."""
        data = enveloped(json_format.ParseDict(message, SESSION[kind]()).SerializeToString())
        sent = {"Content-Type": "application/connect+proto", **headers}
        answer = await self.within("POST", f"{SERVICE}/{name}", data, **sent)
        return events(answer.body, kind.replace("Request", "Response"))

    def as_other(self, **changes: Any) -> Speaker:
        """The same with other words."""
        return replace(self, **changes)

    async def _asked(self, method: str, url: str, **options: Any) -> Answer:
        async with self.http.request(method, url, **options) as answer:
            return Answer(answer.status, answer.headers, await answer.read())


def events(body: bytes, kind: str) -> list[Any]:
    """The events of a stream as JSON; the last one is its end."""
    reader = Envelopes(MOST)
    found = [*reader.feed(body)]
    reader.finish()
    assert [one.flags for one in found] == [0] * (len(found) - 1) + [END_OF_STREAM]
    told = [json_format.MessageToDict(SESSION[kind].FromString(one.content))["event"] for one in found[:-1]]
    return [*told, found[-1].content.decode()]


@asynccontextmanager
async def bridging(fake: FakeGateway, **settings: Any) -> AsyncIterator[Speaker]:
    """A bridge of a gateway, and a client of that bridge."""
    runner = Bridge(Settings(**{"url": fake.url, "secret": SECRET, **settings})).runner()
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        async with aiohttp.ClientSession() as http:
            yield Speaker("http://{}:{}".format(*runner.addresses[0][:2]), http)
    finally:
        await runner.cleanup()
