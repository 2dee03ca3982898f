"""Webhooks over real HTTP: a receiver that takes, fails, asks for time, redirects, hangs, and is gone and back."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
from aiohttp import web
from standardwebhooks import Webhook

from controlplane import webhook_client
from controlplane.clock import SystemClock
from controlplane.lifecycle import Options
from controlplane.webhook_client import MOST_ANSWER_BYTES, WebhookClient
from controlplane.webhooks import Answer, Endpoint, WebhookOptions, outbox, signed
from tests.docs.blocks import blocks
from tests.support.fake_cluster import FakeCluster
from tests.support.stack import free_port
from tests.support.waiting import until
from tests.support.world import OWNER, SPEC, World, world

KEY = bytes(range(32))
SECRET = f"whsec_{base64.b64encode(KEY).decode()}"
LIFE = ["request", "queue", "start", "ready", "end", "confirm"]
Serve = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def serving(serve: Serve, port: int = 0) -> AsyncIterator[str]:
    """The URL of a receiver."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", serve)
    runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port, reuse_address=True).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/in"
    finally:
        await runner.cleanup()


def endpoint(url: str, **more: Any) -> Endpoint:
    return Endpoint("ops", url, (KEY,), **{"private": True, **more})


async def posted(to: Endpoint, body: bytes = b"{}") -> Answer:
    async with WebhookClient.open((to,)) as client:
        return await client.post(to, {"content-type": "application/cloudevents+json"}, body)


def answering(status: int, body: bytes = b"", **headers: str) -> Serve:
    async def serve(_: web.Request) -> web.Response:
        return web.Response(status=status, body=body, headers={one.replace("_", "-"): headers[one] for one in headers})

    return serve


@pytest.mark.parametrize(
    ("status", "verdict", "pause_ms"),
    [(200, "taken", 0), (503, "later", 7_000), (429, "later", 7_000), (400, "refused", 0), (410, "gone", 0)],
)
async def test_what_a_receiver_says_is_heard(status: int, verdict: str, pause_ms: int) -> None:
    async with serving(answering(status, b"x", Retry_After="7")) as url:
        answer = await posted(endpoint(url))
    assert (answer.verdict, answer.retry_after_ms, answer.detail) == (verdict, pause_ms, f"HTTP {status}")


async def test_redirects_are_not_followed() -> None:
    seen = list[str]()

    async def serve(request: web.Request) -> web.Response:
        seen.append(request.path)
        return web.Response(status=307, headers={"Location": "/elsewhere"})

    async with serving(serve) as url:
        answer = await posted(endpoint(url))
    assert (answer.verdict, answer.detail) == ("later", "HTTP 307: redirects are not followed")
    assert seen == ["/in"]


async def test_one_that_hangs_is_left_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook_client, "TOTAL_S", 0.2)

    async def hang(_: web.Request) -> web.Response:
        await asyncio.Event().wait()
        raise AssertionError

    async with serving(hang) as url:
        answer = await posted(endpoint(url))
    assert (answer.verdict, answer.detail) == ("later", "no answer within 0 s")


async def test_an_answer_without_end_is_not_read_to_its_end() -> None:
    async def stream(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        while True:
            await answer.write(b"x" * MOST_ANSWER_BYTES)

    async with serving(stream) as url:
        assert (await posted(endpoint(url))).verdict == "taken"


async def test_where_nobody_listens_the_detail_has_no_url() -> None:
    answer = await posted(endpoint(f"http://user:hidden-word@127.0.0.1:{free_port()}/hidden-word"))
    assert answer.verdict == "later"
    assert "hidden-word" not in answer.detail
    assert "refused" in answer.detail.lower()


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
async def test_a_name_that_leads_to_this_machine_is_not_called_unless_that_is_allowed(host: str) -> None:
    seen = list[str]()

    async def serve(request: web.Request) -> web.Response:
        seen.append(request.path)
        return web.Response()

    async with serving(serve) as url:
        answer = await posted(endpoint(url.replace("127.0.0.1", host), private=False))
        assert (answer.verdict, "may be at" in answer.detail) == ("later", True)
        assert not seen
        assert (await posted(endpoint(url.replace("127.0.0.1", host)))).verdict == "taken"
        assert seen == ["/in"]


async def test_the_receiver_of_the_page_takes_what_is_signed_once_and_nothing_else(
    capsys: pytest.CaptureFixture[str],
) -> None:
    (block,) = (one for one in blocks("docs/operating/webhooks.md") if one.begins.startswith("SECRET"))
    names: dict[str, Any] = {}
    exec(compile(block.text.replace("whsec_...", SECRET), block.page, "exec"), names)
    event = {"id": "sb-1.7.end", "subject": "sb-1", "type": "dev.rollbox.sandbox.end", "data": {"text": "it ended"}}
    body = json.dumps(event).encode()
    async with serving(names["receive"]) as url, WebhookClient.open((to := endpoint(url),)) as client:
        headers = signed(to.keys, "sb-1_7_end", SystemClock().now_ms() // 1000, body)
        for _ in range(2):
            assert (await client.post(to, headers, body)).verdict == "taken"
        assert (await client.post(to, headers, body + b" ")).verdict == "later"
    assert capsys.readouterr().out == "sb-1 dev.rollbox.sandbox.end it ended\n"


@dataclass
class Receiver:
    """Takes what its library verifies, unless it is to fail."""

    taken: list[Any] = field(default_factory=list)
    faults: list[int] = field(default_factory=list)
    media: set[str] = field(default_factory=set)

    async def serve(self, request: web.Request) -> web.Response:
        told = Webhook(SECRET).verify(await request.read(), {**request.headers})
        self.media.add(request.headers["content-type"])
        if self.faults:
            return web.Response(status=self.faults.pop(0))
        self.taken += told if isinstance(told, list) else [told]
        return web.Response(status=204)

    async def whole(self, count: int) -> bool:
        return len(self.taken) >= count


async def listening(plane: World) -> bool:
    return plane.service.events.listeners == 1


@pytest.mark.parametrize("batch", [1, 100])
async def test_a_control_plane_posts_lives_to_a_receiver_that_fails_and_restarts(
    batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "FIRST_PAUSE_MS", 20)
    receiver, port = Receiver(faults=[500, 503, 429]), free_port()
    to = endpoint(f"http://127.0.0.1:{port}/in", batch=batch)
    options = Options(webhooks=WebhookOptions((to,)))
    async with (
        WebhookClient.open((to,)) as client,
        world(FakeCluster(start_s=0.01, ready_s=0.01), options=options, clock=SystemClock(), poster=client) as plane,
    ):
        await until(partial(listening, plane))
        first = (await plane.create(OWNER, SPEC)).sandbox
        async with serving(receiver.serve, port):
            await until(partial(receiver.whole, 4))
        await plane.service.delete(OWNER, first.id, wait_s=60)
        async with serving(receiver.serve, port):
            await until(partial(receiver.whole, 6))
    assert [one["data"]["kind"] for one in receiver.taken] == LIFE
    assert {one["subject"] for one in receiver.taken} == {first.id}
    assert receiver.media == {f"application/cloudevents{'-batch' if batch > 1 else ''}+json"}
    assert json.loads(json.dumps(receiver.taken[0]))["specversion"] == "1.0"
