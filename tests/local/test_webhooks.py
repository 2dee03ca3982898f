"""`rollbox up --webhooks`: events are posted, signed, across a restart; what nobody takes is a dead letter."""

from __future__ import annotations

import base64
import json
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from standardwebhooks import Webhook

from rollbox import Client
from tests.support.images import IMAGE
from tests.support.stack import free_port, start, stop_process
from tests.support.waiting import until

SECRET = f"whsec_{base64.b64encode(bytes(range(32))).decode()}"
LIFE = ["request", "queue", "start", "ready", "end", "confirm"]
SMALL: Any = {"cpu": (0.02, 1), "memory": ("32Mi", "128Mi")}


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short state folder."""
    made = Path(tempfile.mkdtemp(prefix="rb-", dir="/tmp"))
    yield made
    shutil.rmtree(made)


@asynccontextmanager
async def receiving(port: int) -> AsyncIterator[list[Any]]:
    """What a receiver has taken, each event once."""
    taken = dict[str, Any]()

    async def receive(request: web.Request) -> web.Response:
        for event in Webhook(SECRET).verify(await request.read(), {**request.headers}):
            taken.setdefault(event["id"], event)
            told[:] = taken.values()
        return web.Response(status=204)

    told: list[Any] = []
    app = web.Application()
    app.router.add_post("/in", receive)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port, reuse_address=True).start()
        yield told
    finally:
        await runner.cleanup()


def kinds(told: list[Any], sandbox_id: str) -> list[str]:
    return [one["data"]["kind"] for one in told if one["subject"] == sandbox_id and one["data"]["kind"] in LIFE]


@pytest.mark.long
async def test_lives_are_posted_across_a_restart_and_what_nobody_takes_is_a_dead_letter(folder: Path) -> None:
    port, lost = free_port(), free_port()
    (folder / "key").write_text(SECRET)
    each = {"secret_file": str(folder / "key"), "allow_private": True}
    listed = [
        {"name": "ops", "url": f"http://127.0.0.1:{port}/in", "batch": 100, **each},
        {"name": "lost", "url": f"http://127.0.0.1:{lost}/", "types": ["end"], "give_up_seconds": 1, **each},
    ]
    (folder / "hooks.json").write_text(json.dumps(listed))
    options = ("--webhooks", str(folder / "hooks.json"))
    async with receiving(port) as told:
        up = await start(folder, *options)

        async def whole() -> bool:
            return len(kinds(told, sandbox.id)) >= len(LIFE)

        async def ended() -> bool:
            return "end" in kinds(told, sandbox.id)

        async with Client(up.url, up.api_key) as client:
            sandbox = await client.create(IMAGE, **SMALL)
            await sandbox.delete()
            await until(whole)
            assert kinds(told, sandbox.id) == LIFE
            (letter,) = await until(client.dead_letters)
            assert (letter.webhook, letter.why) == ("lost", "expired")
            assert letter.event is not None
            assert letter.event.sandbox_id == sandbox.id
            sandbox = await client.create(IMAGE, **SMALL)
            await sandbox.detach()
    # Nobody receives what its end says, until the next start.
    assert await stop_process(up.process) == 0
    async with receiving(port) as told:
        up = await start(folder, *options)
        await until(ended)
        async with Client(up.url, up.api_key) as client:
            assert letter in await client.dead_letters()
    assert await stop_process(up.process) == 0
    log = (folder / "up.log").read_text()
    assert SECRET not in log
    assert f":{port}" not in log
