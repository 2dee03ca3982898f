"""What a gateway's answer says about a sandbox: against a server that answers as gateways do, or not at all."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from controlplane.cluster import by_gateway
from controlplane.cluster.by_gateway import HttpGateways, NoGateways


@asynccontextmanager
async def gateway(status: int, body: str) -> AsyncIterator[tuple[HttpGateways, list[tuple[str, str | None]]]]:
    asked: list[tuple[str, str | None]] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append((request.path, request.headers.get("Authorization")))
        return web.Response(status=status, text=body, content_type="application/problem+json")

    app = web.Application()
    app.router.add_get("/{rest:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        async with HttpGateways.open(f"http://{host}:{port}") as gateways:
            yield gateways, asked
    finally:
        await runner.cleanup()


@pytest.mark.parametrize(
    ("status", "body", "reached"),
    [
        (200, '{"cpu_ms": 1.0}', True),
        (502, '{"code": "sandbox_unreachable"}', False),
        (504, '{"code": "upstream_timeout"}', False),
        # These say something about the gateway, or about a sandbox that somebody else has judged.
        (503, '{"code": "draining"}', None),
        (410, '{"code": "deleted"}', None),
        (401, '{"code": "unauthenticated"}', None),
        (502, "<html>a proxy</html>", None),
        (502, "[]", None),
    ],
)
async def test_only_a_gateway_that_got_no_answer_says_that_there_is_none(
    status: int, body: str, reached: bool | None
) -> None:
    async with gateway(status, body) as (gateways, asked):
        assert await gateways.reaches("sb-1", "t") is reached
        assert asked == [("/v1/sandboxes/sb-1/usage", "Bearer t")]


async def test_where_no_gateway_answers_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    async with gateway(200, "{}") as (gateways, _):
        url = gateways._url
    async with HttpGateways.open(url) as gone:
        assert await gone.reaches("sb-1", "t") is None
    monkeypatch.setattr(by_gateway, "WITHIN_S", 1e-9)
    async with gateway(200, "{}") as (hurried, _):
        assert await hurried.reaches("sb-1", "t") is None
    assert await NoGateways().reaches("sb-1", "t") is None
