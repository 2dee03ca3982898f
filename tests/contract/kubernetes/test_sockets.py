"""A client that ends leaves no connection behind, whatever its calls were doing."""

import asyncio
import contextlib
import datetime
import socket
from pathlib import Path

import pytest
from aiohappyeyeballs import AddrInfoType
from aiohttp import web

from controlplane.cluster.kubernetes.api_server import sockets
from controlplane.cluster.kubernetes.api_server.client import KubernetesClient
from tests.contract.kubernetes.test_unreachable import DAY, certificate


async def test_a_call_that_is_cancelled_before_its_answer_leaves_no_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[socket.socket] = []
    original = sockets.Sockets.make

    def noted(self: sockets.Sockets, address: AddrInfoType) -> socket.socket:
        made.append(original(self, address))
        return made[-1]

    monkeypatch.setattr(sockets.Sockets, "make", noted)
    arrived, released = asyncio.Event(), asyncio.Event()

    async def held(request: web.Request) -> web.Response:
        del request
        arrived.set()
        await released.wait()
        return web.Response()

    now = datetime.datetime.now(datetime.UTC)
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", held)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=certificate(tmp_path, now - DAY, now + DAY)).start()
    (tmp_path / "kubeconfig").write_text(
        "{apiVersion: v1, kind: Config, current-context: c, users: [{name: u, user: {token: t}}],"
        "contexts: [{name: c, context: {cluster: c, user: u}}], clusters: [{name: c, cluster: "
        f"{{server: 'https://localhost:{runner.addresses[0][1]}', certificate-authority: {tmp_path / 'cert.pem'}}}}}]}}"
    )
    try:
        async with KubernetesClient.connect(tmp_path / "kubeconfig") as client:
            call = asyncio.create_task(client.get("/version"))
            await arrived.wait()
            call.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await call
            assert [one for one in made if one.fileno() >= 0], "the connection closes by itself: nothing is tested"
        assert [one for one in made if one.fileno() >= 0] == []
    finally:
        released.set()
        await runner.cleanup()
